//! The status page: files of this crate, served as they are. What they show they ask of the API, as
//! anybody does; without a token they show nothing.

/// What a browser may do with the page: run and read what comes from here, and nothing else.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'";

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageFile {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const fn file(name: &'static str, kind: &'static str, text: &'static str) -> PageFile {
    PageFile { name, kind, text }
}

/// The page itself.
pub(crate) const INDEX: PageFile = file("index.html", HTML, include_str!("page/index.html"));

const FILES: [PageFile; 6] = [
    file("page.css", CSS, include_str!("page/page.css")),
    file("page.js", SCRIPT, include_str!("page/page.js")),
    file("views.js", SCRIPT, include_str!("page/views.js")),
    file("dom.js", SCRIPT, include_str!("page/dom.js")),
    file("chart.js", SCRIPT, include_str!("page/chart.js")),
    file("words.js", SCRIPT, include_str!("page/words.js")),
];

/// A file that the page needs.
pub(crate) fn find(name: &str) -> Option<PageFile> {
    FILES.into_iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page asks for by these words, such as `from "./dom.js"`.
    fn named<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
        text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn what_the_page_asks_for_is_there_and_nothing_else() {
        let mut asked = named(INDEX.text, "\"/page/");
        for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
            asked.extend(named(file.text, "from \"./"));
        }
        asked.sort_unstable();
        asked.dedup();
        let mut known: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        known.sort_unstable();
        assert_eq!(asked, known);
        assert!(find("nope.js").is_none() && find("../page.rs").is_none());
    }

    #[test]
    fn nothing_is_fetched_from_elsewhere_and_no_text_becomes_markup() {
        for file in FILES.iter().chain([&INDEX]) {
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            for never in ["http://", "https://", "innerHTML", "insertAdjacentHTML", "eval("] {
                assert!(!text.contains(never), "{}: {never}", file.name);
            }
        }
        for never in ["style=", "<style", "onclick=", "onload=", "onsubmit=", "javascript:"] {
            assert!(!INDEX.text.contains(never), "{never}");
        }
    }
}
