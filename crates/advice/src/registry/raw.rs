//! The registry as it is written: keys and types, with the places of what is checked later.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRegistry {
    /// 1 in the strict form, none in the published sample's.
    pub(super) version: Option<Spanned<u64>>,
    pub(super) service: Spanned<RawService>,
    pub(super) epoch_period_sec: Option<Spanned<f64>>,
    pub(super) hosts: Spanned<BTreeMap<String, Spanned<RawHost>>>,
}

/// What the gateway knows the engines by.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawService {
    pub(super) key: Spanned<String>,
    pub(super) vip: Option<Spanned<String>>,
    pub(super) port: Option<Spanned<u64>>,
}

/// One engine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    pub(super) gpu_model: String,
    pub(super) hbm_gb: Spanned<f64>,
    pub(super) role: Spanned<String>,
    pub(super) port: Spanned<u64>,
    pub(super) ep_idx: Spanned<u64>,
    pub(super) expected_num_gpu_blocks: Spanned<u64>,
    pub(super) serving_throughput_prior: Spanned<f64>,
    pub(super) address: Option<Spanned<String>>,
    pub(super) state: Option<Spanned<String>>,
    pub(super) calibration: Option<Spanned<RawCalibration>>,
}

/// What was measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCalibration {
    pub(super) throughput_tokens_per_sec: Option<Spanned<f64>>,
    pub(super) throughput_ratio: Option<Spanned<f64>>,
    pub(super) fingerprint: Option<Spanned<String>>,
    pub(super) fingerprint_fields: Option<RawFields>,
    #[expect(dead_code, reason = "for people: it is read and checked to be a word")]
    pub(super) measured_date: Option<String>,
    #[expect(dead_code, reason = "for people: it is read and checked to be a word")]
    pub(super) harness_version: Option<String>,
}

/// What it was measured on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFields {
    pub(super) gpu_sku: Option<String>,
    pub(super) model_id: Option<String>,
    pub(super) max_model_len: Option<u64>,
    pub(super) vllm_image: Option<String>,
    pub(super) block_size: Option<u64>,
    pub(super) num_gpu_blocks: Option<u64>,
    pub(super) role: Option<String>,
    pub(super) kv_connector: Option<String>,
}

impl RawFields {
    /// Those that are given, by name.
    pub(super) fn given(self) -> BTreeMap<String, String> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let fields = [
            ("gpu_sku", self.gpu_sku),
            ("model_id", self.model_id),
            ("max_model_len", number(self.max_model_len)),
            ("vllm_image", self.vllm_image),
            ("block_size", number(self.block_size)),
            ("num_gpu_blocks", number(self.num_gpu_blocks)),
            ("role", self.role),
            ("kv_connector", self.kv_connector),
        ];
        fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}
