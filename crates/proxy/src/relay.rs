//! The body of an answer on its way to the client.
//!
//! Frames pass as they come. Of a stream of events only whole ones do, so that one that breaks can end
//! with an error event; every other body that breaks is broken for the client too: no end is
//! forged, of either kind.

mod course;
mod ending;
mod events;
mod patience;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use kvasir_fleet::{Reservation, Timeouts};
use kvasir_prompt::Api;
use kvasir_upstream::AnswerStream;
use tokio::time::Sleep;

use self::course::Course;
pub(crate) use self::ending::Break;
use self::ending::error_event;
use self::events::Events;
use self::patience::Patience;
use crate::access_log::AccessLog;
use crate::moment::Awaited;
use crate::owners::{IdTap, Owner, Owners};
use crate::parity::Judge;
use crate::split::{Companion, Ride, StreamMerge};
use crate::usage::UsageTap;

/// How long what was passed on may take to be sent before an answer is broken.
const LINGER: Duration = Duration::from_millis(20);

/// An answer of our own, or an engine's.
pub(crate) type AnswerBody = Either<Full<Bytes>, Box<Relay>>;

/// A body that is there as a whole.
pub(crate) fn whole(text: String) -> AnswerBody {
    Either::Left(Full::new(Bytes::from(text)))
}

/// Whether a head is that of a stream of events.
pub(crate) fn is_event_stream(head: &http::response::Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Whether a body is sent as it is, and not compressed.
pub(crate) fn is_plain(head: &http::response::Parts) -> bool {
    let coding = head.headers.get(CONTENT_ENCODING);
    coding.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// An engine's body, and what is known of it.
#[derive(Debug)]
pub(crate) struct Source {
    /// The frame that came with the head.
    pub(crate) first: Option<Frame<Bytes>>,
    /// `None` where nothing more comes.
    pub(crate) rest: Option<AnswerStream>,
    /// The API that was called, where it is one.
    pub(crate) api: Option<Api>,
    /// Whether it is a stream of events that can be added to.
    pub(crate) is_open: bool,
    /// Of a split request.
    pub(crate) ride: Option<Ride>,
}

impl Source {
    /// Whether an event can be added to a body with this head: compressed or of a length that was
    /// told it can not.
    pub(crate) fn is_open(head: &http::response::Parts) -> bool {
        head.status.is_success()
            && is_event_stream(head)
            && is_plain(head)
            && !head.headers.contains_key(CONTENT_LENGTH)
    }
}

/// Passes an engine's frames on as they come. It carries the request's guards: when it is dropped,
/// for whatever reason, the endpoint's load is released and the access log line is written.
#[derive(Debug)]
pub(crate) struct Relay {
    first: Option<Frame<Bytes>>,
    rest: Option<AnswerStream>,
    api: Option<Api>,
    /// Changes the usage of a split request.
    merge: Option<StreamMerge>,
    /// Its prefill leg, which ends with it.
    _companion: Option<Companion>,
    /// `None` where the body is no stream of events.
    events: Option<Events>,
    course: Option<Course>,
    patience: Patience,
    /// When all answers have to be over.
    cut: Awaited,
    /// The trailers of a stream of events.
    trailers: Option<Frame<Bytes>>,
    /// What is left to be passed when all events have.
    last: Option<Last>,
    /// Something was passed on, and nobody had time to send it.
    unsent: bool,
    /// That time, before an answer is broken.
    linger: Option<Pin<Box<Sleep>>>,
    tap: UsageTap,
    /// Waits for the id of what the engine stores.
    stores: Option<Box<Stores>>,
    ended: bool,
    /// Compares the answer with what was predicted of it, when it is over.
    judge: Option<Box<Judge>>,
    log: AccessLog,
    /// `None` where the engine is already done with the request.
    reservation: Option<Reservation>,
}

#[derive(Debug)]
struct Stores {
    tap: IdTap,
    owners: Arc<Owners>,
    owner: Owner,
}

/// How a body ends.
#[derive(Debug)]
enum Last {
    Frame(Frame<Bytes>),
    Error(Broken),
}

/// An answer was not completed.
#[derive(Debug)]
pub(crate) struct Broken(Break);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer was not completed: {}", self.0.as_str())
    }
}

impl std::error::Error for Broken {}

impl Relay {
    pub(crate) fn new(
        source: Source,
        reservation: Option<Reservation>,
        timeouts: &Timeouts,
        stores: Option<(Arc<Owners>, Owner)>,
        judge: Option<Judge>,
        cut: Awaited,
        log: AccessLog,
    ) -> Self {
        let Source { first, rest, api, is_open, ride } = source;
        let (details, companion) = ride.map_or((None, None), |ride| (ride.details, ride.both));
        let stores =
            stores.map(|(owners, owner)| Box::new(Stores { tap: IdTap::default(), owners, owner }));
        Self {
            first,
            rest,
            api,
            merge: details.filter(|_| is_open).map(StreamMerge::new),
            _companion: companion,
            events: is_open.then(Events::default),
            course: if is_open { Course::of(api) } else { None },
            patience: Patience::new(timeouts.idle, log.started().checked_add(timeouts.request)),
            cut,
            trailers: None,
            last: None,
            unsent: true,
            linger: None,
            tap: UsageTap::new(judge.as_ref().map(|judge| judge.api)),
            stores,
            ended: false,
            judge: judge.map(Box::new),
            log,
            reservation,
        }
    }

    /// What is passed on now.
    fn pass(&mut self, data: Bytes) -> Frame<Bytes> {
        self.unsent = true;
        self.log.bytes_out += data.len() as u64;
        self.tap.see(&data);
        if let Some(stores) = &mut self.stores
            && let Some(id) = stores.tap.see(&data)
        {
            stores.owners.put(id, stores.owner.clone());
            self.stores = None;
        }
        Frame::data(data)
    }

    /// What came from the engine; `None` where nothing of it may pass yet.
    fn take_in(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        self.patience.came();
        match (frame.into_data(), &self.events) {
            (Ok(data), Some(_)) => {
                let data = match &mut self.merge {
                    Some(merge) => merge.push(data),
                    None => data,
                };
                self.take_events(data)
            }
            (Ok(data), None) => Some(self.pass(data)),
            // They come last, and only behind what is complete.
            (Err(trailers), Some(_)) => {
                self.trailers = Some(trailers);
                None
            }
            (Err(trailers), None) => Some(trailers),
        }
    }

    /// What is left of a stream of events after that.
    fn take_events(&mut self, data: Bytes) -> Option<Frame<Bytes>> {
        if data.is_empty() {
            return None;
        }
        if let Some(course) = &mut self.course {
            course.see(&data);
        }
        let whole = self.events.as_mut()?.push(data)?;
        Some(self.pass(whole))
    }

    /// Nothing more comes. A stream of events says when it is complete; one that ends without is
    /// told to be broken off, unless the answer in it is complete.
    fn end(&mut self) {
        self.rest = None;
        self.ended = true;
        let (ended, finished) = match &self.course {
            Some(course) => (course.has_ended(), course.is_finished()),
            None => (true, true),
        };
        if ended {
            self.log.complete();
        } else {
            self.log.broke(Break::NoDone);
        }
        if finished || ended {
            // The end of the last event may be missing, but not what it says.
            self.events.iter_mut().for_each(Events::release);
            self.last = self.trailers.take().map(Last::Frame);
        } else {
            self.tell(Break::NoDone);
        }
    }

    /// The rest will not come.
    fn break_off(&mut self, why: Break) {
        // The engine learns by it that nobody waits any more.
        self.rest = None;
        self.ended = true;
        let has_passed = |events: &Events| !events.holds_back();
        if self.course.as_ref().is_some_and(Course::has_ended)
            && self.events.as_ref().is_some_and(has_passed)
        {
            // The client has the whole answer.
            return self.log.complete();
        }
        self.log.broke(why);
        self.tell(why);
    }

    /// Tells the client that the answer is not complete: by an event where one can follow, by a
    /// broken connection where not.
    fn tell(&mut self, why: Break) {
        let can_follow = self.events.as_mut().is_some_and(Events::cut);
        let sequence = self.course.as_ref().and_then(Course::next_sequence);
        self.last = Some(if can_follow {
            let event = error_event(self.api, why, sequence);
            self.log.bytes_out += event.len() as u64;
            Last::Frame(Frame::data(event))
        } else {
            Last::Error(Broken(why))
        });
    }

    /// Ready when what was passed on has had its time to be sent, the answer's head included: an HTTP/2
    /// stream that is reset forgets what waits in it.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.unsent) {
            self.linger = Some(Box::pin(tokio::time::sleep(LINGER)));
        }
        self.linger.as_mut().map_or(Poll::Ready(()), |linger| linger.as_mut().poll(cx))
    }

    fn poll_engine(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Break>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        // An engine that always has something does not get around it.
        if !rest.is_end_stream() {
            if self.cut.is_there() {
                return Poll::Ready(Some(Err(Break::Stopping)));
            }
            if self.patience.is_over() {
                return Poll::Ready(Some(Err(Break::Deadline)));
            }
        }
        match Pin::new(rest).poll_frame(cx) {
            Poll::Pending if self.cut.poll(cx).is_ready() => {
                Poll::Ready(Some(Err(Break::Stopping)))
            }
            Poll::Pending => self.patience.poll(cx).map(|why| Some(Err(why))),
            Poll::Ready(next) => Poll::Ready(next.map(|next| next.map_err(|_| Break::Broke))),
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        loop {
            if let Some(data) = this.events.as_mut().and_then(Events::next) {
                return Poll::Ready(Some(Ok(this.pass(data))));
            }
            if this.ended {
                if matches!(this.last, Some(Last::Error(_))) {
                    ready!(this.poll_sent(cx));
                }
                return Poll::Ready(this.last.take().map(|last| match last {
                    Last::Frame(frame) => Ok(frame),
                    Last::Error(error) => Err(error),
                }));
            }
            match this.poll_engine(cx) {
                Poll::Pending => {
                    this.unsent = false;
                    return Poll::Pending;
                }
                Poll::Ready(None) => {
                    this.rest = None;
                    let held = this.merge.take().map(|mut merge| merge.end());
                    if let Some(frame) = held.and_then(|held| this.take_events(held)) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    this.end();
                }
                Poll::Ready(Some(Err(why))) => this.break_off(why),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(frame) = this.take_in(frame) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // How a stream of events ends is seen at its end only.
        let rest_is_over = self.rest.as_ref().is_none_or(Body::is_end_stream);
        self.events.is_none() && self.last.is_none() && self.first.is_none() && rest_is_over
    }

    fn size_hint(&self) -> SizeHint {
        if self.events.is_some() {
            return SizeHint::default();
        }
        let held = self.first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + held);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.ended {
            if self.is_end_stream() {
                // A body of known length is not polled past its last byte.
                self.log.complete();
            } else if self.cut.is_there() {
                // Its client took nothing more in the time that was left.
                self.log.broke(Break::Stopping);
            }
        }
        let mut usage = self.tap.found();
        if let Some(reservation) = &mut self.reservation {
            if !self.log.is_complete() {
                reservation.uncounted();
            }
            if let Some(judge) = &self.judge {
                usage.cached_tokens = judge.judge(reservation, &self.log, usage);
            }
        }
        self.log.usage = usage;
    }
}
