//! Version texts.

use super::*;

#[test]
fn spellings_of_one_release() {
    for text in ["0.32.0", "v0.32.0", "0.32", " 0.32.0\n", "0.32.0+cu129", "0.32.0.post1"] {
        assert_eq!(text.parse(), Ok(Version::release(0, 32, 0)), "{text:?}");
    }
    // Two numbers are enough, and a suffix may be a part of its own.
    assert_eq!("0.32.dev3".parse::<Version>().ok(), "0.32.0.dev3".parse().ok());
    assert!("0.32.dev3".parse::<Version>().unwrap() < Version::release(0, 32, 0));
    let four: Version = "0.10.1.1".parse().unwrap();
    assert!(four > Version::release(0, 10, 1) && four < Version::release(0, 10, 2));
}

#[test]
fn text_that_is_no_version() {
    let long = "9".repeat(10_000);
    for text in [
        "",
        "latest",
        "0",
        "v",
        "0.",
        ".9",
        "0..1",
        "0.x.1",
        "0.32.0-rc",
        "0.32.0+",
        "0.32.0+a b",
        "0.65536.0",
        "1.2.3.4.5",
        "0.32.rc1.5",
        "-0.32.0",
        "0.32.0rc1x",
        "dev.0.1",
        "0.32.0 beta",
        &long,
    ] {
        let error = text.parse::<Version>().unwrap_err();
        assert!(error.to_string().contains("not a version number"), "{text:?}: {error}");
        assert!(error.to_string().len() < 200, "foreign text must not flood the message");
    }
}
