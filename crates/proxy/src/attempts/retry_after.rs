//! `retry-after`: when a busy engine wants to be asked again.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// In seconds, as engines say it, with or without a fraction; `None` where it is not there, is a date,
/// or says "at once".
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    (!time.is_zero()).then_some(time)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_time_ahead_counts() {
        let read = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read(" 0.25 "), Some(Duration::from_millis(250)));
        for text in ["", "0", "-1", "inf", "NaN", "1e400", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
