//! Tests of this crate with real processes. The test binary is its own shim, and the parent that is killed, so it has no
//! test harness but the small one below: `it [FILTER]`.
#![allow(clippy::unwrap_used)]

mod agent;
mod fake;
mod shim;
mod support;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_ref().and_then(|argument| argument.to_str()) {
        Some("shim") => gangway_node::shim::main(arguments),
        Some("parent-of-a-shim") => shim::parent_main(arguments),
        _ => run_tests(),
    }
}

fn tests() -> Vec<Test> {
    [shim::TESTS, agent::TESTS, fake::TESTS].concat()
}

fn run_tests() -> ExitCode {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let chosen: Vec<Test> = tests().into_iter().filter(|(name, _)| name.contains(&filter)).collect();
    if std::env::args().any(|argument| argument == "--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let failed = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some((name, test)) = chosen.get(next.fetch_add(1, Ordering::SeqCst)) {
            let passed = catch_unwind(test).is_ok();
            println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
            if !passed {
                failed.lock().unwrap().push(*name);
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(worker))));
    let failed = failed.into_inner().unwrap();
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {} passed; {} failed\n", chosen.len() - failed.len(), failed.len());
    ExitCode::from(u8::from(!failed.is_empty()))
}
