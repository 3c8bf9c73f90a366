//! The order in which one engine is looked at.

use kvasir_fleet::ProbeError;

use crate::compare::Alike;
use crate::report::Report;
use crate::stream::Listener;
use crate::target::Target;
use crate::{contract, inspect, metrics, prediction, probe, stream, tokens};

/// Looks at every leg of one engine.
///
/// Takes a few seconds: every question has a deadline, and sockets that do not answer are waited
/// for once, for [`Target::patience`].
pub async fn check(target: &Target) -> Report {
    let mut legs = Vec::new();
    let mut facts = match inspect::inspect(target, &mut legs).await {
        Ok(facts) => facts,
        Err(error) => {
            // A refusal is an answer.
            let answers = matches!(error, ProbeError::Status { .. } | ProbeError::Content { .. });
            return Report { answers, ..Report::new(target.base_url(), None, legs) };
        }
    };
    // Listening begins before anything is sent, so that nothing sent goes unheard.
    let mut listener: Option<Listener> = stream::listen(target, &facts, &mut legs).await;
    tokens::compare(target, &mut facts, &mut legs).await;
    let before = listener.as_ref().map_or(0, |listener| listener.collected().batches);
    let probed = probe::send(target, &facts, listener.as_mut()).await;
    if let Some(listener) = &mut listener {
        listener.settle().await;
    }
    let events = listener.as_ref().map(Listener::collected);
    if let Some(heard) = events {
        stream::look_back(heard, before, probed.answered(), &mut legs);
    }
    contract::legs(target, &facts, &probed, events, &mut legs);
    prediction::leg(&facts, &probed, &mut legs);
    metrics::legs(&facts, &probed, &mut legs).await;
    let alike = Alike::of(&facts);
    Report { alike, ..Report::new(target.base_url(), Some(facts.engine()), legs) }
}
