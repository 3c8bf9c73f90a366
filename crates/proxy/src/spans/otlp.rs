//! Records as spans: OTLP's JSON form (opentelemetry-proto 1.x: ids in hexadecimal, 64-bit integers
//! as strings), named by OpenTelemetry's semantic conventions where there are any.

#[cfg(test)]
mod tests;

use std::time::Instant;

use http::Uri;
use serde_json::{Value, json};

use super::record::{Attempt, Choice, Decided, Ended, Pattern, Record};
use crate::split::Leg;

const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const ERROR: u8 = 2;

/// The body of a request to a collector (`ExportTraceServiceRequest`).
pub(super) fn body(service: &str, version: &str, records: &[Record]) -> Vec<u8> {
    let mut resource = Attributes::default();
    resource.text("service.name", service);
    resource.text("service.version", version);
    let spans: Vec<Value> = records.iter().flat_map(spans).collect();
    let whole = json!({"resourceSpans": [{
        "resource": {"attributes": resource.0},
        "scopeSpans": [{
            "scope": {"name": "kvasir", "version": version},
            "spans": spans,
        }],
    }]});
    whole.to_string().into_bytes()
}

fn spans(record: &Record) -> Vec<Value> {
    let Some((ended, end)) = &record.ended else { return Vec::new() };
    let maker = Maker { record, ended, end: *end };
    let mut spans = vec![maker.server(), maker.receive()];
    spans.extend(maker.tokenise());
    spans.extend(record.choices.iter().enumerate().map(|choice| maker.choose(choice)));
    let attempts = record.attempts.iter().enumerate();
    spans.extend(attempts.map(|(place, attempt)| maker.upstream(place, attempt)));
    spans
}

/// Makes the spans of one request.
struct Maker<'a> {
    record: &'a Record,
    ended: &'a Ended,
    end: Instant,
}

impl Maker<'_> {
    fn server(&self) -> Value {
        let Self { record, ended, end } = self;
        let route = match record.route {
            Pattern::Path => Some(&*ended.path),
            Pattern::Fixed(route) => Some(route),
            Pattern::None => None,
        };
        let mut attributes = Attributes::default();
        attributes.text("http.request.method", &ended.method);
        attributes.text("url.scheme", record.scheme);
        attributes.text("url.path", &ended.path);
        attributes.some("http.route", route);
        if ended.status != 0 {
            attributes.number("http.response.status_code", ended.status.into());
        }
        attributes.some("gen_ai.request.model", ended.model.as_deref());
        attributes.number_of("gen_ai.usage.input_tokens", ended.reported_prompt_tokens);
        attributes.number_of("kvasir.reported_cached_tokens", ended.reported_cached_tokens);
        attributes.text("kvasir.request_id", &ended.request_id);
        attributes.some("kvasir.endpoint", ended.endpoint.as_deref());
        attributes.some("kvasir.plan", ended.plan);
        attributes.some("kvasir.prefill_endpoint", ended.prefill_endpoint.as_deref());
        attributes.decided(ended.decision);
        attributes.text("kvasir.outcome", ended.outcome);
        attributes.number("kvasir.attempts", ended.attempts.into());
        attributes.number_of("kvasir.waited_ms", ended.waited_ms);
        let code = (ended.status >= 500).then(|| ended.status.to_string());
        let error = ended.broken.or(code.as_deref());
        attributes.some("error.type", error);
        // A name has few values.
        let name = match route {
            Some(route) => format!("{} {route}", ended.method),
            None => ended.method.clone(),
        };
        let mut span = self.span(record.id, &name, SERVER, (ended.started, *end), &attributes);
        if let Some(parent) = record.context.parent {
            span["parentSpanId"] = hex(parent).into();
        } else if let Some(span) = span.as_object_mut() {
            span.remove("parentSpanId");
        }
        if error.is_some() {
            span["status"] = json!({"code": ERROR, "message": ended.outcome});
        }
        span
    }

    fn receive(&self) -> Value {
        let (began, ended) = (self.ended.started, self.record.received);
        let times = (began, ended.unwrap_or(self.end));
        let mut span = self.span(self.child(1), "receive", INTERNAL, times, &Attributes::default());
        if ended.is_none() {
            span["status"] = json!({"code": ERROR, "message": self.ended.outcome});
        }
        span
    }

    fn tokenise(&self) -> Option<Value> {
        let phase = self.record.tokenise?;
        let mut attributes = Attributes::default();
        attributes.text("kvasir.tokens", self.ended.tokens);
        let times = (phase.began, phase.ended.unwrap_or(self.end));
        Some(self.span(self.child(2), "tokenise", INTERNAL, times, &attributes))
    }

    fn choose(&self, (place, choice): (usize, &Choice)) -> Value {
        let mut attributes = Attributes::default();
        attributes.decided(choice.decision);
        let times = (choice.phase.began, choice.phase.ended.unwrap_or(self.end));
        self.span(self.child(3 + place as u64), "choose", INTERNAL, times, &attributes)
    }

    fn upstream(&self, place: usize, attempt: &Attempt) -> Value {
        let is_last = place + 1 == self.record.attempts.len();
        let mut attributes = Attributes::default();
        attributes.text("http.request.method", &self.ended.method);
        attributes.text("kvasir.endpoint", &attempt.url);
        attributes.server(&attempt.url);
        attributes.number_of("kvasir.rank", attempt.rank.map(u64::from));
        attributes.number_of("http.response.status_code", attempt.status.map(u64::from));
        attributes.some("kvasir.leg", attempt.leg.map(Leg::as_str));
        let before = self.record.attempts.get(..place).unwrap_or_default();
        let resent = before.iter().filter(|earlier| earlier.leg == attempt.leg).count();
        if resent > 0 {
            attributes.number("http.request.resend_count", resent as u64);
        }
        let status = attempt.status.filter(|status| *status >= 400).map(|code| code.to_string());
        let broken = self.ended.broken.filter(|_| is_last);
        let (error, why) = match (&attempt.error, broken, &status) {
            (Some((phase, why)), _, _) => (Some(*phase), Some(&**why)),
            (None, Some(why), _) => (Some(why), Some(why)),
            (None, None, status) => (status.as_deref(), status.as_deref()),
        };
        attributes.some("error.type", error);
        let times = (attempt.phase.began, attempt.phase.ended.unwrap_or(self.end));
        let mut span = self.span(attempt.id, "upstream", CLIENT, times, &attributes);
        if let Some(at) = attempt.first_data {
            span["events"] = json!([{"timeUnixNano": self.nanos(at), "name": "first data"}]);
        }
        if let Some(why) = why {
            span["status"] = json!({"code": ERROR, "message": why});
        }
        span
    }

    /// A child of the server span, until something else is said.
    fn span(
        &self,
        id: u64,
        name: &str,
        kind: u8,
        (began, ended): (Instant, Instant),
        attributes: &Attributes,
    ) -> Value {
        json!({
            "traceId": format!("{:032x}", self.record.context.trace_id),
            "spanId": hex(id),
            "parentSpanId": hex(self.record.id),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": self.nanos(began),
            "endTimeUnixNano": self.nanos(ended),
            "attributes": attributes.0,
        })
    }

    /// The id of a span that nobody else is told of: ids are unique within a trace only, and those
    /// beside a random one are nobody's.
    fn child(&self, place: u64) -> u64 {
        self.record.id.wrapping_add(place).max(1)
    }

    fn nanos(&self, at: Instant) -> String {
        self.record.unix_nanos(at).to_string()
    }
}

fn hex(id: u64) -> String {
    format!("{id:016x}")
}

#[derive(Debug, Default)]
struct Attributes(Vec<Value>);

impl Attributes {
    fn text(&mut self, key: &str, value: &str) {
        self.0.push(json!({"key": key, "value": {"stringValue": value}}));
    }

    fn some(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn number(&mut self, key: &str, value: u64) {
        self.0.push(json!({"key": key, "value": {"intValue": value.to_string()}}));
    }

    fn number_of(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.number(key, value);
        }
    }

    fn decided(&mut self, decision: Option<Decided>) {
        let Some(decided) = decision else { return };
        self.text("kvasir.policy", decided.policy);
        self.text("kvasir.reason", decided.reason);
        self.number("kvasir.overlap_tokens", decided.overlap_tokens);
        self.number("kvasir.prompt_tokens", decided.prompt_tokens);
    }

    fn server(&mut self, url: &str) {
        let uri: Uri = url.parse().unwrap_or_default();
        let Some(host) = uri.host() else { return };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        self.text("server.address", bare.unwrap_or(host));
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        self.number("server.port", uri.port_u16().unwrap_or(usual).into());
    }
}
