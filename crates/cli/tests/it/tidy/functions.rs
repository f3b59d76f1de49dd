//! How long a function may be.

use std::path::Path;

use syn::visit::{self, Visit};

use super::{assert_none, read, relative, rust_files};

/// What fits a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that may be longer: file, function, and why splitting would not help a reader.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

#[test]
fn functions_fit_a_screen() {
    let mut offences = Vec::new();
    let mut excused = Vec::new();
    for file in rust_files() {
        let name = relative(&file);
        for function in functions(&file).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
            let exception =
                EXCEPTIONS.iter().find(|(file, called, _)| *file == name && *called == function.name);
            match exception {
                Some(exception) => excused.push(*exception),
                None => offences.push(format!("{name}: {} has {} lines", function.name, function.lines)),
            }
        }
    }
    for exception in EXCEPTIONS.iter().filter(|exception| !excused.contains(exception)) {
        offences.push(format!("{}: {} needs no exception any more", exception.0, exception.1));
    }
    assert_none(&format!("no function has more than {FUNCTION_LINES_MAX} lines"), &offences);
}

struct Function {
    name: String,
    /// From its signature to its closing brace.
    lines: usize,
}

fn functions(file: &Path) -> Vec<Function> {
    let syntax = syn::parse_file(&read(file)).unwrap_or_else(|error| panic!("{}: {error}", relative(file)));
    let mut collector = Collector::default();
    collector.visit_file(&syntax);
    collector.functions
}

#[derive(Default)]
struct Collector {
    functions: Vec<Function>,
}

impl Collector {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let lines = body.brace_token.span.close().end().line - signature.fn_token.span.start().line + 1;
        self.functions.push(Function { name: signature.ident.to_string(), lines });
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[test]
fn a_function_is_as_long_as_it_looks() {
    let source =
        "fn short() {}\nimpl A {\n    /// Why.\n    fn long(\n    ) {\n        let a = 1;\n    }\n}\n";
    let mut collector = Collector::default();
    collector.visit_file(&syn::parse_file(source).unwrap());
    let seen: Vec<_> =
        collector.functions.iter().map(|function| (function.name.as_str(), function.lines)).collect();
    assert_eq!(seen, [("short", 1), ("long", 4)]);
}
