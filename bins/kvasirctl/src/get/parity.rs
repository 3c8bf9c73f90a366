//! Whether prompts and caches are what they are taken for, for people.

use serde_json::Value;

use crate::gateway::view::{cell, list, plain, text};

/// Pool by pool: what was compared, and what is wrong.
pub(crate) fn text_of(document: &Value) -> String {
    let pools = list(document, "pools");
    let mut out = String::new();
    let mut problems = 0;
    for pool in pools {
        out.push_str(&format!("pool {}\n", plain(text(pool, "model"))));
        out.push_str(&compared(pool));
        for problem in list(pool, "problems") {
            problems += 1;
            out.push_str(&problem_of(problem));
        }
    }
    out + &match problems {
        0 => "no problems\n".to_owned(),
        1 => "1 problem\n".to_owned(),
        many => format!("{many} problems\n"),
    }
}

fn compared(pool: &Value) -> String {
    let tokenizer = &pool["tokenizer"];
    let why = match text(tokenizer, "why") {
        "" => String::new(),
        why => format!(" ({})", plain(why)),
    };
    let mut out = format!("  tokenizer           {}{why}\n", plain(text(tokenizer, "state")));
    for (part, state) in pool["oracles"].as_object().into_iter().flatten() {
        out.push_str(&format!("  engine's {:<10} {}\n", plain(part), plain(&cell(state))));
    }
    for one in list(pool, "token_counts") {
        out.push_str(&format!(
            "  token counts        {} {}: {} equal, {} different\n",
            plain(text(one, "api")),
            plain(text(one, "model")),
            cell(&one["equal"]),
            cell(&one["different"]),
        ));
    }
    for one in list(pool, "hash_contracts") {
        let contract = match text(one, "contract") {
            "" => String::new(),
            contract => format!(" {}", plain(contract)),
        };
        out.push_str(&format!(
            "  hash contract       {} rank {}: {}{contract}\n",
            plain(text(one, "endpoint")),
            cell(&one["rank"]),
            plain(text(one, "state")),
        ));
    }
    out
}

/// A cause, what shows it, and what to do.
pub(crate) fn problem_of(problem: &Value) -> String {
    let of = match text(problem, "endpoint") {
        "" => String::new(),
        endpoint => format!("  {}", plain(endpoint)),
    };
    format!(
        "  {}{of}\n    {}\n    -> {}\n",
        plain(text(problem, "cause")),
        plain(text(problem, "finding")),
        plain(text(problem, "remedy")),
    )
}
