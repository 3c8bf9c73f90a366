//! Paths and queries: percent-encoding, and the segments of a route.

/// The text a percent-encoded one stands for; `None` where it is not UTF-8, or badly encoded.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || (rest.next()? as char).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// The values of a template's `{…}` in a path, in order; `None` where the path is another one.
pub(crate) fn values(template: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    let mut values = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(values),
            (Some(wanted), Some(given)) if wanted.starts_with('{') => {
                values.push(decoded(given).filter(|value| !value.is_empty())?);
            }
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return None,
        }
    }
}

/// One value of a query, decoded.
pub(crate) fn of_query(query: Option<&str>, key: &str) -> Option<String> {
    let pairs = query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let found = pairs.into_iter().find(|(name, _)| *name == key)?;
    decoded(&found.1.replace('+', " "))
}

/// The names of a query's values.
pub(crate) fn names(query: Option<&str>) -> impl Iterator<Item = &str> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split('=').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_after_they_are_told_apart() {
        let of = |path: &str| values("/pools/{model}/endpoints/{endpoint}", path);
        let expected = Some(vec!["org/model".to_owned(), "h:80".to_owned()]);
        assert_eq!(of("/pools/org%2Fmodel/endpoints/h%3A80"), expected);
        for other in
            ["/pools/org/model/endpoints/h:80", "/pools//endpoints/h", "/pools/m/endpoints/%ff"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn queries() {
        assert_eq!(of_query(Some("a=1&b=x%20y+z"), "b").as_deref(), Some("x y z"));
        assert_eq!(of_query(Some("a"), "a").as_deref(), Some(""));
        assert_eq!(of_query(None, "a"), None);
    }
}
