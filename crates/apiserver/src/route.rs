//! From a path to what it is about.

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Version,
    Health,
    CoreVersions,
    Groups,
    Group(&'a str),
    Resources { group: &'a str, version: &'a str },
    Resource(ResourcePath<'a>),
}

/// The parts of a resource's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourcePath<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) plural: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) subresource: Option<&'a str>,
}

/// No resource path has more segments than this.
const MAX_SEGMENTS: usize = 8;

pub(crate) fn parse(path: &str) -> Option<Route<'_>> {
    let mut segments = [""; MAX_SEGMENTS];
    let mut count = 0;
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        *segments.get_mut(count)? = segment;
        count += 1;
    }
    match &segments[..count] {
        ["version"] => Some(Route::Version),
        ["healthz" | "readyz" | "livez", ..] => Some(Route::Health),
        ["api"] => Some(Route::CoreVersions),
        ["apis"] => Some(Route::Groups),
        ["apis", group] => Some(Route::Group(group)),
        ["api", version] => Some(Route::Resources { group: "", version }),
        ["apis", group, version] => Some(Route::Resources { group, version }),
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        _ => None,
    }
}

fn resource<'a>(group: &'a str, version: &'a str, rest: &[&'a str]) -> Option<Route<'a>> {
    let (namespace, rest) = match rest {
        // A namespace's own subresources, not resources inside it.
        ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
        _ => return None,
    };
    Some(Route::Resource(ResourcePath { group, version, namespace, plural, name, subresource }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let path = |text| match parse(text) {
            Some(Route::Resource(path)) => path,
            other => panic!("{text} is {other:?}"),
        };
        let pod = path("/api/v1/namespaces/default/pods/a/log");
        assert_eq!((pod.group, pod.namespace, pod.plural), ("", Some("default"), "pods"));
        assert_eq!((pod.name, pod.subresource), (Some("a"), Some("log")));
        let jobs = path("/apis/batch/v1/jobs");
        assert_eq!((jobs.group, jobs.namespace, jobs.plural, jobs.name), ("batch", None, "jobs", None));
        let namespace = path("/api/v1/namespaces/x/status");
        assert_eq!((namespace.plural, namespace.name), ("namespaces", Some("x")));
        assert_eq!(namespace.subresource, Some("status"));
        assert_eq!(path("/api/v1/namespaces/x").name, Some("x"));
        assert_eq!(parse("/apis/batch"), Some(Route::Group("batch")));
        assert_eq!(parse("/nothing"), None);
        assert_eq!(parse("/api/v1/a/b/c/d/e/f/g/h"), None);
    }
}
