//! The API server as its clients see it.

// A test that cannot go on ends; helpers count as tests here.
#![allow(clippy::unwrap_used)]

mod bindings;
mod controllers;
mod crud;
mod custom;
mod deletion;
mod events;
mod interceptors;
mod kept;
mod lists;
mod logs;
mod namespaces;
mod patches;
mod priorities;
mod serving;
mod support;
mod watches;
