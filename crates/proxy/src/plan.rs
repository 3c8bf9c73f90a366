//! What is known of a request before an engine is chosen.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};
use hyper::body::Incoming;
use kvasir_balance::{Blind, HEAD_BYTES, Needs};
use kvasir_fleet::{Endpoint, Evidence, Fleet, MAX_TEXT_BYTES, Pool, PromptTokens, Resolved};
use kvasir_prompt::{Api, Envelope, model_of_form};

use crate::access_log::AccessLog;
use crate::app::{App, Now, Permits};
use crate::parity::{Judge, counts_the_prompt};
use crate::prompt::{Asked, Known, Source, tokenise};
use crate::reading;
use crate::refusal::Refusal;
use crate::request_body;
use crate::route::stored_id;
use crate::session;
use crate::spans::Step;
use crate::split::{self, OWN_PARAMS, SEVERAL_ANSWERS, why_not};
use crate::token_header;

/// A request that was read and understood as far as routing needs.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) resolved: Resolved,
    /// The model asked for, as the client names it: the pool's, or an adapter.
    pub(crate) model: String,
    pub(crate) body: Bytes,
    /// Whether it may be sent again after an engine took it and broke off.
    pub(crate) repeatable: bool,
    /// The engine that keeps what the request goes on from, where that is known.
    pub(crate) owner: Option<Arc<Endpoint>>,
    /// For requests whose API is known: compares the answer with what was predicted.
    pub(crate) judge: Option<Judge>,
    /// Whether engines hit of it what they hold.
    comparable: bool,
    /// The digest of the conversation the client says it is part of.
    session: Option<u64>,
    /// Whether tools are declared.
    tools: bool,
    /// Whether images or the like are part of it, as far as anybody asks.
    images: bool,
    /// Why its tokens are not known.
    blind: Option<Blind>,
    /// The id the client gave it, where the pool's decisions are logged.
    request_id: Option<String>,
    known: Known,
    /// Images or the like are named in it, though its tokens are from a header.
    names_media: bool,
    salt: Option<String>,
    /// Its blocks are those of a namespace that only the engine knows.
    engine_extras: bool,
    /// Its answer begins when all of it was generated.
    answered_whole: bool,
    /// The API that is called, where it is one.
    pub(crate) api: Option<Api>,
    /// Its fields, and why it cannot be split, once that was asked: at once in pools that split requests.
    request: OnceLock<split::Read>,
    why_whole: OnceLock<Option<&'static str>>,
}

impl Plan {
    /// Reads the request. `api` is `None` for paths forwarded as they are.
    pub(crate) async fn read(
        app: &App,
        now: &Now,
        parts: &Parts,
        body: Incoming,
        api: Option<Api>,
        log: &mut AccessLog,
    ) -> Result<Self, Refusal> {
        let limit = now.settings.max_body_bytes;
        let body = request_body::read(body, limit, waits(&parts.headers)).await?;
        log.note(Step::Received);
        Self::of(app, now, parts, (body, &app.permits), api, log).await
    }

    /// [`read`](Self::read) of a body that is there, within these bounds.
    pub(crate) async fn of(
        app: &App,
        now: &Now,
        parts: &Parts,
        (body, permits): (Bytes, &Permits),
        api: Option<Api>,
        log: &mut AccessLog,
    ) -> Result<Self, Refusal> {
        log.bytes_in = body.len() as u64;
        let (envelope, names_media) = envelope_of(permits, now, parts, &body, api).await?;
        log.stream = envelope.stream;
        log.comparable = !envelope.prompt_logprobs;
        let (resolved, model, owner) = destination(app, now, &envelope, parts)?;
        // However it is called: only an adapter is another model than the pool's.
        let own = resolved.adapter.is_none().then(|| resolved.pool.model().to_owned());
        let named = own.as_deref().unwrap_or(&model);
        log.model = Some(named.to_owned());
        log.pool = log.observer.as_ref().map(|_| Arc::clone(&resolved.pool));
        let loads = resolved.pool.prompts().loads();
        log.note(Step::Tokenising);
        let seen = Seen { api, parts, body: &body, envelope: &envelope, names_media };
        let mut known = seen.tokens(permits, &resolved, log).await;
        log.note(Step::Tokenised);
        let is_single = known.prompts.as_ref().is_some_and(|prompts| prompts.len() == 1);
        let judge = api.map(|api| judge(&resolved.pool, named, (api, loads), &mut known));
        (log.tokens, log.level) = (known.tokens, known.level);
        log.token_source = known.source.as_str();
        let engine_extras = envelope.engine_extras;
        if engine_extras {
            (log.tokens, log.level, log.comparable) = ("engine_extras", "none", false);
        }
        // Of several prompts, engines report the cached tokens of one; pooling may hit less than there is.
        let generates = api.is_some_and(Api::is_generation);
        log.comparable &= generates && is_single && known.is_exact();
        let pool = &resolved.pool;
        let plan = Self {
            repeatable: api.is_some(),
            owner,
            judge,
            comparable: log.comparable,
            session: session::of_request(named, pool.sessions(), &parts.headers, &envelope.names),
            tools: envelope.tools,
            images: names_media || known.tokens == "multimodal",
            blind: if engine_extras { Some(Blind::Unsupported) } else { known.blind(api) },
            request_id: log.request_id().filter(|_| pool.logs_decisions()).map(str::to_owned),
            names_media: names_media && known.source == Source::Header,
            salt: envelope.cache_salt,
            engine_extras,
            answered_whole: generates && !envelope.stream,
            api,
            request: OnceLock::new(),
            why_whole: OnceLock::new(),
            resolved,
            model,
            body,
            known,
        };
        if plan.resolved.pool.split().is_some() {
            plan.read_for_legs(permits).await;
            log.not_split = plan.why_whole(&plan.resolved.pool);
            if log.not_split == Some(SEVERAL_ANSWERS) && plan.resolved.pool.serves_only_split() {
                return Err(Refusal::SeveralAnswers(plan.model));
            }
        }
        Ok(plan)
    }

    /// What every engine of a pool, its own or the one that has taken its place, holds of it now, when
    /// it has `waited` for room for so long.
    pub(crate) fn evidence_in(&self, pool: &Pool, waited: Option<Duration>) -> Evidence {
        let tokens = PromptTokens {
            prompts: self.known.prompts.as_deref().filter(|_| !self.engine_extras),
            count: self.known.count,
            exact: self.known.is_exact(),
            adapter: self.resolved.adapter.as_deref(),
            salt: self.salt.as_deref(),
        };
        let asked = kvasir_fleet::Asked {
            session: self.session,
            text: self.known.text.as_ref().filter(|_| !self.engine_extras),
            head: &self.body,
            tools: self.tools,
            images: self.images,
            blind: self.blind,
        };
        let evidence = pool.evidence_of(&tokens, &asked);
        let evidence = evidence.known_as(self.request_id.as_deref());
        let mut evidence = evidence.after_waiting(waited);
        if self.answered_whole {
            evidence = evidence.answered_whole();
        }
        if let Some(why) = pool.split().and_then(|_| self.why_whole(pool)) {
            evidence = evidence.not_split();
            if why == OWN_PARAMS || self.generates_nothing() {
                evidence = evidence.computes_nothing();
            }
        }
        if self.comparable { evidence } else { evidence.not_judged() }
    }

    /// Why one engine has to do all of it, in a pool that splits requests.
    pub(crate) fn why_whole(&self, pool: &Pool) -> Option<&'static str> {
        *self
            .why_whole
            .get_or_init(|| why_not(self.api, || self.request().clone(), pool.transfer_protocol()))
    }

    /// Its fields, for the bodies of legs. Where its pool came to split requests while it waited they are
    /// read here, however many there are.
    pub(crate) fn request(&self) -> &split::Read {
        self.request.get_or_init(|| split::read(self.body.clone()))
    }

    /// Reads them, and why it cannot be split, where that may take long elsewhere.
    async fn read_for_legs(&self, permits: &Permits) {
        let (api, body) = (self.api, self.body.clone());
        let protocol = self.resolved.pool.transfer_protocol();
        let look = move || {
            let mut seen = None;
            let read = || seen.insert(split::read(body)).clone();
            (why_not(api, read, protocol), seen)
        };
        let looked = reading::on(&permits.readers, self.body.len(), look).await;
        let (why, seen) = looked.unwrap_or((Some("not_json"), None));
        let _ = self.why_whole.set(why);
        if let Some(seen) = seen {
            let _ = self.request.set(seen);
        }
    }

    /// Whether no prompt is computed for it, as far as anybody knows: of paths that are forwarded as
    /// they are, the engine will say.
    fn generates_nothing(&self) -> bool {
        matches!(self.api, None | Some(Api::Tokenize | Api::Detokenize))
    }

    /// Why nobody in the pool serves it, where that is since it is not split: for people.
    pub(crate) fn why_nobody(&self, pool: &Pool) -> Option<String> {
        let why = pool.split().and_then(|_| self.why_whole(pool))?;
        let is_theirs = why == OWN_PARAMS || self.generates_nothing();
        (!is_theirs && pool.serves_only_split()).then(|| {
            format!(
                "it cannot be split ({why}), decode engines of SGLang compute no prompts, and there is \
                 no unified endpoint"
            )
        })
    }

    /// Prompt tokens, estimated where they are not known.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.known.count
    }

    /// Whether its blocks differ from those of a plain prompt by more than tokens.
    pub(crate) fn has_extras(&self) -> bool {
        self.salt.is_some()
            || self.engine_extras
            || self.resolved.adapter.is_some()
            || self.known.tokens == "multimodal"
            || self.names_media
    }
}

/// A request as it was read.
struct Seen<'a> {
    api: Option<Api>,
    parts: &'a Parts,
    body: &'a Bytes,
    envelope: &'a Envelope,
    names_media: bool,
}

impl Seen<'_> {
    /// The tokens of its prompts: those of a header where the pool believes it, else by the model's
    /// template and tokenizer.
    async fn tokens(&self, permits: &Permits, resolved: &Resolved, log: &mut AccessLog) -> Known {
        let Self { parts, body, .. } = *self;
        let Some(api) = self.api.filter(|_| is_json(&parts.headers)) else {
            return Known::only_size(body.len(), "not_json");
        };
        let pool = &resolved.pool;
        let adapted = resolved.adapter.is_some();
        let plain = !adapted && !self.names_media;
        match token_header::read(pool, &permits.readers, api, plain, &parts.headers).await {
            Some((claim, ids)) if pool.token_headers().believed() => {
                log.claim = Some(claim);
                Known::of_header(pool, ids)
            }
            claimed => {
                log.claim = claimed.map(|(claim, _)| claim);
                let salt = self.envelope.cache_salt.as_deref();
                let text = wanted_text(pool.needs());
                let learns = log.is_written();
                let request = Asked { api, body, salt, adapted, text, learns };
                tokenise(pool, &permits.tokenizers, request).await
            }
        }
    }
}

/// What the body says that a gateway acts on, and whether it names images or the like, where anybody
/// asks.
async fn envelope_of(
    permits: &Permits,
    now: &Now,
    parts: &Parts,
    body: &Bytes,
    api: Option<Api>,
) -> Result<(Envelope, bool), Refusal> {
    let permits = &permits.readers;
    if !is_json(&parts.headers) {
        return Ok((of_form(&parts.headers, body), false));
    }
    if api.is_none() {
        // What is sent to other paths may be anything.
        return Ok(reading::envelope(permits, body, false).await.unwrap_or_default());
    }
    let looks = token_header::is_there(&parts.headers) || now.fleet.reads_images();
    let read = reading::envelope(permits, body, looks).await;
    read.map_err(|error| Refusal::Malformed(error.to_string()))
}

/// Pool and model, and the engine that keeps what the request goes on from, where it is known.
fn destination(
    app: &App,
    now: &Now,
    envelope: &Envelope,
    parts: &Parts,
) -> Result<(Resolved, String, Option<Arc<Endpoint>>), Refusal> {
    let stored = stored_id(parts.uri.path()).map(|(id, _)| id);
    let stored = envelope.previous_response_id.as_deref().or(stored);
    let owner = stored.and_then(|id| app.owners.get(id));
    let owned_by = owner.as_ref().map(|owner| &*owner.model);
    let (resolved, model) =
        resolve(&now.fleet, envelope, owned_by, &parts.headers).map_err(|refusal| {
            // Where the path alone says what is asked for, it is that which is not found.
            match (refusal, stored_id(parts.uri.path())) {
                (Refusal::NoModel, Some((id, _))) => Refusal::UnknownResponse(id.to_owned()),
                (refusal, _) => refusal,
            }
        })?;
    let owner = owner.and_then(|owner| {
        let members = resolved.pool.members();
        members.iter().find(|member| *member.url() == *owner.url).cloned()
    });
    Ok((resolved, model, owner))
}

/// What compares the answer with what is known. Where engines lately counted other tokens than the
/// tokenizer here (the `loads`-th in use), what it says is in doubt.
fn judge(pool: &Arc<Pool>, model: &str, (api, loads): (Api, u64), known: &mut Known) -> Judge {
    let is_single = known.prompts.as_ref().is_some_and(|prompts| prompts.len() == 1);
    let is_ours = known.is_exact() && known.source == Source::Local;
    let is_counted = is_single && is_ours && counts_the_prompt(api);
    let counted = is_counted.then_some(known.count);
    if is_ours && pool.token_parity().mismatch(loads, model, api.as_str()) {
        known.doubt();
    }
    Judge { pool: Arc::clone(pool), model: model.to_owned(), api, loads, counted }
}

/// The pool: by the body's `model`, else by who keeps what it goes on from, else by the `x-model`
/// header, else the only one.
fn resolve(
    fleet: &Fleet,
    envelope: &Envelope,
    owned_by: Option<&str>,
    headers: &HeaderMap,
) -> Result<(Resolved, String), Refusal> {
    if fleet.pools().is_empty() {
        return Err(Refusal::NotReady);
    }
    let by_header =
        || owned_by.or_else(|| headers.get("x-model").and_then(|value| value.to_str().ok()));
    // An engine takes an empty name for its own model.
    let by_body = envelope.model.as_deref().filter(|model| !model.is_empty());
    let Some(model) = by_body.or_else(by_header) else {
        let pool = fleet.only_pool().ok_or(Refusal::NoModel)?;
        let resolved = Resolved { pool: Arc::clone(pool), adapter: None };
        return Ok((resolved, pool.model().to_owned()));
    };
    match fleet.resolve(model) {
        Some(resolved) if by_body.is_some() => Ok((resolved, model.to_owned())),
        // Engines do not read the header: without a model in the body they run their base model.
        Some(Resolved { pool, .. }) => {
            let model = pool.model().to_owned();
            Ok((Resolved { pool, adapter: None }, model))
        }
        // An engine that has not said yet what it serves may serve it.
        None if !fleet.is_known() => Err(Refusal::NotReady),
        None => Err(Refusal::UnknownModel(model.to_owned())),
    }
}

/// How much of a prompt's text the pool's policies look at, where its tokens are not known.
fn wanted_text(needs: Needs) -> usize {
    match (needs.keys, needs.head) {
        (true, _) => MAX_TEXT_BYTES,
        (false, true) => HEAD_BYTES,
        (false, false) => 0,
    }
}

/// What is known of a body that is no JSON: the model of a form.
fn of_form(headers: &HeaderMap, body: &[u8]) -> Envelope {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    Envelope { model: kind.and_then(|kind| model_of_form(kind, body)), ..Envelope::default() }
}

/// Whether the client waits to be told to send its body.
pub(crate) fn waits(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// Whether the body is JSON that can be read: clients often leave the type out.
fn is_json(headers: &HeaderMap) -> bool {
    let plain = headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"));
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    plain
        && kind.is_none_or(|kind| !kind.starts_with(b"multipart/") && !kind.starts_with(b"audio/"))
}
