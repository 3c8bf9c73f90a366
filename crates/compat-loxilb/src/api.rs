//! The API itself: rules, inventory, metrics; and what is declined, with the reason.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, StatusCode};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};

use crate::answer::{Answer, Refusal, json_answer, with_body};
use crate::gateway::Gateway;
use crate::rule::Rule;
use crate::store::{self, StoreError};
use crate::table::{Placed, Table, Which};
use crate::tally::{Note, Tally};
use crate::translate::Defaults;
use crate::{exposition, inventory};

/// Where all paths but `/metrics` begin.
const BASE: &str = "/netlox/v1";
const RULES: &str = "/config/loadbalancer";

/// What is not served, and why.
const DECLINED: [(&str, &str); 9] = [
    ("/config/ai/apikey", "clients' keys are in the file (api_keys_file)"),
    ("/config/ai/tenant/ratelimit", "limits are set in the file (pools[].admission)"),
    ("/config/ai/model-profiles", "tokenizers and templates are checked against the engines"),
    ("/config/worker/metrics", "engines' metrics are read from the engines"),
    ("/config/pii", "bodies are not rewritten"),
    ("/config/llamafirewall", "bodies are not judged"),
    ("/config/gpu", "engines' metrics are read from the engines"),
    ("/config/opa", "policies on requests belong in front of the gateway"),
    ("/status/capabilities", "GET /config/loadbalancer/all says what is in effect"),
];

/// The rules, and what is done with them.
pub struct Api {
    gateway: Arc<dyn Gateway>,
    defaults: Defaults,
    otherwise: IpAddr,
    store: Option<PathBuf>,
    table: RwLock<Table>,
    /// Held by whoever changes rules.
    changing: tokio::sync::Mutex<()>,
    tally: Mutex<Tally>,
    shows_metrics: AtomicBool,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Api {
    /// With the rules that were kept in `store`, which are not in effect yet. Ports whose address is not
    /// this machine's are bound at `otherwise`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(
        gateway: Arc<dyn Gateway>,
        defaults: Defaults,
        otherwise: IpAddr,
        store: Option<PathBuf>,
    ) -> Result<Self, StoreError> {
        let table = store.as_deref().map(store::load).transpose()?.unwrap_or_default();
        Ok(Self {
            gateway,
            defaults,
            otherwise,
            store,
            table: RwLock::new(table),
            changing: tokio::sync::Mutex::new(()),
            tally: Mutex::default(),
            shows_metrics: AtomicBool::new(true),
        })
    }

    /// Puts the rules that were kept into effect. Those that cannot be are named in the log and stay
    /// listed: the next change at their port tries them again.
    pub async fn restore(&self) {
        let _changing = self.changing.lock().await;
        let table = self.table.read().clone();
        for at in table.places() {
            if let Err(refusal) = self.put(&table, at).await {
                tracing::error!(rule = %at, why = refusal.text, "a rule that was kept is not in effect");
            }
        }
    }

    /// Counts a request that ended at a rule's port.
    pub fn note(&self, note: &Note<'_>) {
        self.tally.lock().note(&self.table.read(), note);
    }

    /// Answers a request.
    pub(crate) async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: Bytes,
    ) -> Answer {
        if path == "/metrics" {
            return self.metrics(method);
        }
        let Some(path) = path.strip_prefix(BASE) else {
            return Refusal::missing("no such path").answer();
        };
        match path {
            "/metrics" => return self.metrics(method),
            "/config/ai/kv/inventory" if method == Method::GET => {
                return inventory::answer(&self.table.read(), &*self.gateway, query);
            }
            "/config/ai/kv/inventory" => {
                let error = json!({"error": "method not allowed"});
                return json_answer(StatusCode::METHOD_NOT_ALLOWED, &error);
            }
            "/config/metrics" => return self.switch(method, &body),
            _ => {}
        }
        let declined = DECLINED.iter().find(|(prefix, _)| path.starts_with(prefix));
        let answered = match (declined, path.strip_prefix(RULES)) {
            (Some((_, why)), _) => Err(Refusal::declined(format!("not supported: {why}"))),
            (None, Some(rest)) => self.rules(method, rest, query, &body).await,
            (None, None) => Err(Refusal::missing("no such path")),
        };
        answered.unwrap_or_else(|refusal| refusal.answer())
    }

    fn metrics(&self, method: &Method) -> Answer {
        if method != Method::GET {
            return Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed").answer();
        }
        if !self.shows_metrics.load(Ordering::Relaxed) {
            let why = "prometheus metrics are off (POST /netlox/v1/config/metrics)";
            return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why).answer();
        }
        let table = self.table.read().clone();
        let page = exposition::page(&table, &self.tally.lock(), &*self.gateway);
        with_body(StatusCode::OK, "text/plain; version=0.0.4", page)
    }

    fn switch(&self, method: &Method, body: &[u8]) -> Answer {
        let on = match *method {
            Method::GET => {
                let on = self.shows_metrics.load(Ordering::Relaxed);
                return json_answer(StatusCode::OK, &json!({ "prometheus": on }));
            }
            Method::DELETE => Some(false),
            Method::POST => {
                let body: Option<Value> = serde_json::from_slice(body).ok();
                body.and_then(|body| body.get("prometheus")?.as_bool())
            }
            _ => {
                return Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed").answer();
            }
        };
        let Some(on) = on else {
            return Refusal::bad("the body is {\"prometheus\": true or false}").answer();
        };
        self.shows_metrics.store(on, Ordering::Relaxed);
        with_body(StatusCode::NO_CONTENT, "application/json", String::new())
    }

    async fn rules(
        &self,
        method: &Method,
        rest: &str,
        query: &str,
        body: &[u8],
    ) -> Result<Answer, Refusal> {
        match (method, rest) {
            (&Method::POST, "") => self.post(body).await,
            (&Method::GET, "/all") => Ok(self.list()),
            (&Method::DELETE, _) => {
                let which = which(rest, query)?;
                self.delete(&which).await
            }
            (&Method::PATCH, _) => {
                Err(Refusal::declined("patch is not available for fullproxy rules: POST replaces"))
            }
            _ => Err(Refusal::missing("no such path")),
        }
    }

    async fn post(&self, body: &[u8]) -> Result<Answer, Refusal> {
        let rule: Rule = serde_json::from_slice(body)
            .map_err(|error| Refusal::bad(format!("malformed arguments: {error}")))?;
        let _changing = self.changing.lock().await;
        let mut table = self.table.read().clone();
        let (model, at) = (rule.service.model_name.clone(), table.post(rule)?);
        let bound = self.put(&table, at).await?;
        self.settle(table, &[at]).await?;
        let table = self.table.read();
        let service = table.serving(at, &model).map(|placed| placed.service);
        let mut answer = json!({"result": "Success", "service_id": service, "bound": bound});
        if bound != at {
            let why = format!("{} is no address of this machine: bound to {bound}", at.ip());
            answer["note"] = json!(why);
        }
        Ok(json_answer(StatusCode::OK, &answer))
    }

    async fn delete(&self, which: &Which) -> Result<Answer, Refusal> {
        let _changing = self.changing.lock().await;
        let mut table = self.table.read().clone();
        let places = table.delete(which)?;
        for at in &places {
            self.put(&table, *at).await?;
        }
        self.settle(table, &places).await?;
        Ok(json_answer(StatusCode::OK, &json!({"result": "Success"})))
    }

    async fn put(&self, table: &Table, at: SocketAddr) -> Result<SocketAddr, Refusal> {
        let scope = table.scope(at, self.otherwise, &self.defaults)?;
        self.gateway.put(scope).await.map_err(Refusal::bad)
    }

    /// What is in effect is kept and shown from now on; or none of it.
    async fn settle(&self, table: Table, places: &[SocketAddr]) -> Result<(), Refusal> {
        if let Some(path) = self.store.clone() {
            let keeping = table.clone();
            let kept = tokio::task::spawn_blocking(move || store::keep(&path, &keeping)).await;
            if !matches!(kept, Ok(Ok(()))) {
                tracing::error!(?kept, "a rule is not kept");
                let before = self.table.read().clone();
                for at in places {
                    self.put(&before, *at).await?;
                }
                let why = "the rules cannot be kept (loxilb.store): nothing is changed";
                return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why));
            }
        }
        *self.table.write() = table;
        Ok(())
    }

    fn list(&self) -> Answer {
        let table = self.table.read();
        let shown: Vec<Value> = table.rules().iter().map(shown).collect();
        json_answer(StatusCode::OK, &json!({ "lbAttr": shown }))
    }
}

fn shown(placed: &Placed) -> Value {
    json!({
        "serviceArguments": placed.rule.service,
        "endpoints": placed.rule.endpoints,
        "secondaryIPs": [],
        "service_id": placed.service,
        "ep_idx": placed.indices,
    })
}

/// Which rules a path of `DELETE` is about.
fn which(rest: &str, query: &str) -> Result<Which, Refusal> {
    let parts: Vec<&str> = rest.split('/').skip(1).collect();
    match parts.as_slice() {
        ["all"] => Ok(Which::All),
        ["name", name] => Ok(Which::Name((*name).to_owned())),
        ["externalipaddress", ip, "port", port, "protocol", protocol] => {
            let ip = ip.parse().map_err(|_| Refusal::bad(format!("malformed address `{ip}`")))?;
            let port =
                port.parse().map_err(|_| Refusal::bad(format!("malformed port `{port}`")))?;
            if !protocol.eq_ignore_ascii_case("tcp") {
                return Err(Refusal::missing("no such load balancer rule"));
            }
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let model = pairs.find(|(key, _)| *key == "model_name");
            let model = model.map(|(_, model)| model.replace("%2F", "/").replace("%2f", "/"));
            Ok(Which::At { at: SocketAddr::new(ip, port), model })
        }
        // No rule has a host: they are declined.
        ["hosturl", _, "externalipaddress", ..] => {
            Err(Refusal::missing("no such load balancer rule"))
        }
        _ => Err(Refusal::missing("no such path")),
    }
}
