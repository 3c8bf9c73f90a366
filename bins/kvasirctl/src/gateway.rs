//! A running gateway, to a command: where it is, what it is asked, and what its refusals mean.

mod connection;
mod file;
mod messages;
mod near;
mod secret;
pub(crate) mod view;

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use kvasir_admin_client::{AdminClient, ApiPath, AskError};
use serde_json::Value;

use self::connection::Connection;
pub(crate) use self::near::said as near_names;
use crate::args::ConnectArgs;

/// The admin API of one gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    client: AdminClient,
    connection: Connection,
}

impl Gateway {
    /// The one that arguments, environment and the file of settings name. Nothing is asked yet.
    pub(crate) fn of(args: &ConnectArgs) -> Result<Self> {
        let connection = Connection::of(args)?;
        Ok(Self { client: connection.client()?, connection })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        self.client.url()
    }

    /// The token that is shown to it.
    pub(crate) fn token(&self) -> Option<&str> {
        self.connection.token()
    }

    /// What a route shows.
    pub(crate) async fn get(&self, path: &ApiPath) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    /// A page that is no JSON.
    pub(crate) async fn text(&self, path: &ApiPath) -> Result<String> {
        let text = self.client.text(path).await;
        text.map_err(|error| messages::of(error, &self.connection))
    }

    /// A change.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &ApiPath,
        body: Option<&Value>,
    ) -> Result<Value> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        self.send(method, path, body).await
    }

    /// A body as it is.
    pub(crate) async fn send(&self, method: Method, path: &ApiPath, body: Bytes) -> Result<Value> {
        match self.client.send(method, path, body).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.explained(error).await),
        }
    }

    /// What an error means here; of what is not there, what there is.
    async fn explained(&self, error: AskError) -> anyhow::Error {
        let missing = error.refusal().filter(|refusal| refusal.status.as_u16() == 404);
        let near = match missing {
            Some(refusal) => near::names(&self.client, &refusal.message).await,
            None => None,
        };
        let error = messages::of(error, &self.connection);
        match near {
            Some(near) => anyhow::anyhow!("{error:#}; {near}"),
            None => error,
        }
    }
}
