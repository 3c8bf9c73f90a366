//! SGLang (0.5): both engines get the client's request at once, with the place where the prefill
//! engine offers its blocks and a number under which the decode engine finds them there.

use bytes::Bytes;
use kvasir_prompt::Edit;
use serde_json::Value;

use super::Request;

/// Where a prefill engine's bootstrap server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bootstrap {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Either leg.
pub(super) fn leg(body: &Request, at: &Bootstrap, room: u64) -> Bytes {
    let edit = Edit::default()
        .set("bootstrap_host", Value::from(at.host.as_str()).to_string())
        .set("bootstrap_port", at.port.to_string())
        .set("bootstrap_room", room.to_string());
    body.edited(&edit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_legs_are_told_where_to_meet_and_nothing_else_is_changed() {
        let at = Bootstrap { host: "10.0.0.1".to_owned(), port: 8998 };
        let table = [
            (
                "{ \"stream\": true , \"max_tokens\":7 }",
                "{ \"stream\": true , \"max_tokens\":7,\"bootstrap_host\":\"10.0.0.1\",\
                 \"bootstrap_port\":8998,\"bootstrap_room\":5 }",
            ),
            (
                "{}",
                "{\"bootstrap_host\":\"10.0.0.1\",\"bootstrap_port\":8998,\"bootstrap_room\":5}",
            ),
            (
                "{\"bootstrap_room\":null,\"a\":{\"bootstrap_room\":1}}",
                "{\"bootstrap_room\":5,\"a\":{\"bootstrap_room\":1},\
                 \"bootstrap_host\":\"10.0.0.1\",\"bootstrap_port\":8998}",
            ),
        ];
        for (body, want) in table {
            assert_eq!(leg(&Request::read(body.into()).unwrap(), &at, 5), want, "{body}");
        }
    }
}
