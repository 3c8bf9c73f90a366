//! Routes that change things.

use kvasir_config::{Change, DEFAULT_TENANT, RoutingMode};
use serde_json::{Value, json};

use super::{Asked, reads};
use crate::aside::LeftOut;
use crate::audit;
use crate::control::{Applied, Control};
use crate::error::ApiError;
use crate::routes::Does;
use crate::version::{Expected, Version};
use crate::views;

/// Makes the change a request asks for, and shows what came of it, and in which configuration.
pub(super) async fn change(
    control: &dyn Control,
    asked: &Asked,
) -> Result<(Value, Version), ApiError> {
    let does = asked.route.does;
    let expected = Expected::of(&asked.parts.headers);
    if does == Does::Reload {
        let Applied { changes, version, persisted, dropped } = control.reload(expected).await?;
        let shown = json!({
            "reloaded": true,
            "changes": changes,
            "persisted": persisted,
            "dropped": dropped.iter().map(LeftOut::shown).collect::<Vec<Value>>(),
            "warnings": views::all_warnings(&control.fleet()),
        });
        return Ok((shown, version));
    }
    let change = read(control, asked)?;
    let model = change.model().unwrap_or_default().to_owned();
    let made = match &change {
        Change::CreateEndpoint { endpoint, .. } => {
            endpoint.get("url").and_then(Value::as_str).map(views::authority_of)
        }
        Change::PatchEndpoint { endpoint, .. } => Some(endpoint.clone()),
        _ => None,
    };
    let applied = control.change(change, expected).await?;
    let shown = match (does, &made) {
        (Does::CreatePool | Does::PatchPool, _) => reads::pool(control, &model),
        (Does::CreateEndpoint | Does::PatchEndpoint, Some(endpoint)) => {
            reads::endpoint(control, &model, endpoint)
        }
        (Does::PatchRouting, _) => reads::routing(control, &model, None),
        _ => Ok(json!({"deleted": true})),
    };
    // It is made, and what it made may be gone again by another change: that is no error of this one.
    let mut shown = shown.unwrap_or_else(|_| json!({}));
    shown["persisted"] = applied.persisted.into();
    shown["changes"] = applied.changes.into();
    shown["warnings"] = views::all_warnings(&control.fleet()).into();
    Ok((shown, applied.version))
}

fn read(control: &dyn Control, asked: &Asked) -> Result<Change, ApiError> {
    let model = asked.value(0).to_owned();
    let endpoint = || match asked.value(1) {
        name if name.contains('#') => {
            let why = "names one rank: changes are made to whole engines, by `host:port` alone";
            Err(ApiError::invalid("endpoint", why))
        }
        name => Ok(views::authority_of(name)),
    };
    Ok(match asked.route.does {
        Does::CreatePool => Change::CreatePool(asked.object()?.into()),
        Does::PatchPool => Change::PatchPool { model, patch: asked.object()? },
        Does::DeletePool => Change::DeletePool { model },
        Does::CreateEndpoint => Change::CreateEndpoint { model, endpoint: asked.object()?.into() },
        Does::PatchEndpoint => {
            Change::PatchEndpoint { model, endpoint: endpoint()?, patch: asked.object()? }
        }
        Does::DeleteEndpoint => Change::DeleteEndpoint { model, endpoint: endpoint()? },
        Does::PatchRouting => patch_routing(control, asked, model)?,
        Does::DeleteRouting => {
            check_tenant(asked.query("tenant").as_deref())?;
            Change::DeleteRouting { model }
        }
        _ => return Err(ApiError::not_found("there is no such change")),
    })
}

fn patch_routing(control: &dyn Control, asked: &Asked, model: String) -> Result<Change, ApiError> {
    let mut patch = asked.object()?;
    let named = match patch.remove("tenant") {
        None => None,
        Some(Value::String(tenant)) => Some(tenant),
        Some(_) => return Err(ApiError::invalid("tenant", "must be a text")),
    };
    check_tenant(asked.query("tenant").as_deref())?;
    check_tenant(named.as_deref())?;
    // What E4 takes as well: the mode by its word alone is checked where the others are.
    if let Some(Value::String(mode)) = patch.get("mode")
        && ![RoutingMode::RoundRobin, RoutingMode::CacheAware].iter().any(|m| m.as_str() == mode)
    {
        let why = format!("`{mode}` is no mode; there are `round_robin` and `cache_aware`");
        return Err(ApiError::invalid("mode", why));
    }
    reads::pool_place(control, &model)?;
    Ok(Change::PatchRouting { model, patch, at: audit::now() })
}

/// Settings are those of everybody.
pub(super) fn check_tenant(tenant: Option<&str>) -> Result<(), ApiError> {
    match tenant {
        None | Some(DEFAULT_TENANT) => Ok(()),
        Some(other) => {
            let why = format!(
                "settings of single tenants are not supported: `{other}` is routed as \
                 `{DEFAULT_TENANT}` is"
            );
            Err(ApiError::invalid("tenant", why))
        }
    }
}
