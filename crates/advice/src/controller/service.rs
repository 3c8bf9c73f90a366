//! The gRPC services: snapshots to whoever watches, acknowledgements, and health.

use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response, header};
use hyper::body::Incoming;
use kvasir_tokens::TokenDigest;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service as _;

use super::advisor::Advisor;
use crate::wire::SERVICE;
use crate::wire::aictrl::ai_ctrl_server::{AiCtrl, AiCtrlServer};
use crate::wire::aictrl::{Ack, AckResponse, Snapshot, WatchRequest};
use crate::wire::health::health_check_response::ServingStatus;
use crate::wire::health::health_server::{Health, HealthServer};
use crate::wire::health::{HealthCheckRequest, HealthCheckResponse};

/// The largest message that is taken, in bytes.
const MAX_MESSAGE: usize = 64 << 10;
/// Bytes of a gateway's name.
const MAX_NAME: usize = 256;

/// What the services share.
#[derive(Clone, Debug)]
pub(super) struct Services {
    pub(super) advisor: Arc<Mutex<Advisor>>,
    pub(super) snapshots: watch::Sender<Option<Snapshot>>,
    /// What a gateway must show, where there is a token.
    pub(super) token: Option<TokenDigest>,
}

type Snapshots = Pin<Box<dyn Stream<Item = Result<Snapshot, Status>> + Send>>;

impl Services {
    /// Answers one call.
    pub(super) async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        if !self.lets_in(&request) {
            return Status::unauthenticated("no token, or another one").into_http();
        }
        let path = request.uri().path();
        let request_of =
            |prefix: &str| path.strip_prefix('/').is_some_and(|path| path.starts_with(prefix));
        let (is_control, is_health) =
            (request_of("loxilb.aictrl.v1.AiCtrl/"), request_of("grpc.health.v1.Health/"));
        let request = request.map(Body::new);
        let answered = if is_control {
            let server = AiCtrlServer::new(self).max_decoding_message_size(MAX_MESSAGE);
            { server }.call(request).await
        } else if is_health {
            let server = HealthServer::new(self).max_decoding_message_size(MAX_MESSAGE);
            { server }.call(request).await
        } else {
            return Status::unimplemented("no such service").into_http();
        };
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn lets_in(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = self.token else { return true };
        let shown = request.headers().get(header::AUTHORIZATION);
        let shown = shown.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        shown.is_some_and(|shown| TokenDigest::of(shown) == token)
    }
}

/// A gateway that watches, until it is dropped.
struct Watching(Arc<Mutex<Advisor>>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.lock().note_watcher(false);
    }
}

#[tonic::async_trait]
impl AiCtrl for Services {
    type WatchSnapshotsStream = Snapshots;

    async fn watch_snapshots(
        &self,
        request: tonic::Request<WatchRequest>,
    ) -> Result<tonic::Response<Snapshots>, Status> {
        let request = request.into_inner();
        check_name(&request.gateway_id)?;
        tracing::info!(
            gateway = request.gateway_id,
            version = request.applier_version,
            "a gateway watches"
        );
        self.advisor.lock().note_watcher(true);
        let watching = Watching(Arc::clone(&self.advisor));
        let mut last = None;
        let snapshots = WatchStream::new(self.snapshots.subscribe()).filter_map(move |snapshot| {
            let snapshot: Snapshot = snapshot?;
            if let Some(missed) = last.and_then(|last: u64| snapshot.epoch.checked_sub(last + 1)) {
                watching.0.lock().note_dropped(missed);
            }
            last = Some(snapshot.epoch);
            Some(Ok(snapshot))
        });
        Ok(tonic::Response::new(Box::pin(snapshots)))
    }

    async fn ack_snapshot(
        &self,
        request: tonic::Request<Ack>,
    ) -> Result<tonic::Response<AckResponse>, Status> {
        let ack = request.into_inner();
        check_name(&ack.gateway_id)?;
        self.advisor.lock().note_ack(&ack);
        Ok(tonic::Response::new(AckResponse {}))
    }
}

fn check_name(name: &str) -> Result<(), Status> {
    if name.len() <= MAX_NAME {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("gateway_id has more than {MAX_NAME} bytes")))
}

#[tonic::async_trait]
impl Health for Services {
    async fn check(
        &self,
        request: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !service.is_empty() && service != SERVICE {
            return Err(Status::not_found("no such service"));
        }
        let status = ServingStatus::Serving as i32;
        Ok(tonic::Response::new(HealthCheckResponse { status }))
    }
}
