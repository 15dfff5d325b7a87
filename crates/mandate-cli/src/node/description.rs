//! What the description of the interface (OpenAPI) needs besides what the functions that answer say of themselves.
//!
//! A description that a validator refuses is of no use: generators of clients refuse it, too. So every operation has
//! a name of its own, and the refusals that any request can meet are in it.

use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, HttpMethod, ObjectBuilder, OpenApi, ResponseBuilder, Type};

use super::access;

/// Names every operation, and adds the answers that do not come from the function that it names.
pub(super) fn complete(api: &mut OpenApi) {
    for (path, item) in &mut api.paths.paths {
        let operations = [
            (HttpMethod::Get, &mut item.get),
            (HttpMethod::Put, &mut item.put),
            (HttpMethod::Post, &mut item.post),
            (HttpMethod::Delete, &mut item.delete),
            (HttpMethod::Head, &mut item.head),
            (HttpMethod::Options, &mut item.options),
            (HttpMethod::Patch, &mut item.patch),
            (HttpMethod::Trace, &mut item.trace),
        ];
        for (method, operation) in operations {
            if let Some(operation) = operation {
                name(operation, &method);
                refusals(operation, access::is_open(path));
            }
        }
    }
}

/// One function answers to several methods, and gave all of them its name.
fn name(operation: &mut Operation, method: &HttpMethod) {
    let ending = match method {
        HttpMethod::Head => "_head",
        HttpMethod::Options => "_options",
        _ => return,
    };
    if let Some(id) = &mut operation.operation_id {
        id.push_str(ending);
    }
}

fn refusals(operation: &mut Operation, is_open: bool) {
    let token = (!is_open)
        .then_some(("401", "A token is wanted, and none or another was shown; what to do"));
    let always = [
        ("403", "Not from that page, host or address; what to do"),
        ("408", "It took too long; whether it was done is not known"),
    ];
    for (code, description) in token.into_iter().chain(always) {
        let text = Content::new(Some(ObjectBuilder::new().schema_type(Type::String)));
        let refused = ResponseBuilder::new().description(description).content("text/plain", text);
        operation.responses.responses.entry(code.into()).or_insert_with(|| refused.build().into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::node::openapi;

    #[test]
    fn every_operation_has_a_name_of_its_own_and_says_how_it_refuses() {
        let document = serde_json::to_value(openapi()).unwrap();
        let mut names = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap().to_owned();
                assert!(names.insert(name.clone()), "{name} again, of {method} {path}");
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.contains_key("403"), "{method} {path}");
                let is_open =
                    ["/leader", "/livez", "/readyz", "/openapi.json"].contains(&path.as_str());
                assert_eq!(responses.contains_key("401"), !is_open, "{method} {path}");
            }
        }
        assert!(names.contains("leader") && names.contains("leader_head"));
    }
}
