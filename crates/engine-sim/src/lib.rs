//! A model of an inference engine.
