//! The contract between gateway and controller, as it goes over the wire: `proto/aictrl.proto`, and
//! gRPC's health protocol. The code is made by `cargo xtask proto`.

/// Messages and services of `loxilb.aictrl.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::doc_markdown)]
pub mod aictrl {
    include!("generated/loxilb.aictrl.v1.rs");
}

/// gRPC's health checking protocol.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::doc_markdown)]
pub mod health {
    include!("generated/grpc.health.v1.rs");
}

/// The version of the rules by which a gateway applies snapshots, as it names it to the controller.
pub const APPLIER_VERSION: u32 = 1;

/// The path before a method's name.
pub const SERVICE: &str = "loxilb.aictrl.v1.AiCtrl";
