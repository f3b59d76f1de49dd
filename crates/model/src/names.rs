//! Names. One newtype per kind of name, cheap to clone, ordered as byte strings.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($($(#[$doc:meta])* $type:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $type {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $type {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}

name! {
    /// A ClusterQueue's name.
    ClusterQueueName;
    /// A Cohort's name; the Cohort object need not exist.
    CohortName;
    /// A ResourceFlavor's name.
    FlavorName;
    /// A namespace's name.
    NamespaceName;
    /// A Node's name.
    NodeName;
    /// The name of a podSet within its Workload.
    PodSetName;
    /// A resource as pods request it: `cpu`, `memory`, `nvidia.com/gpu`, or `pods` for the pod count.
    ResourceName;
    /// An AdmissionCheck's name.
    AdmissionCheckName;
}

/// The resource that stands for the number of pods; nobody requests it, the count is implied.
pub const PODS_RESOURCE: &str = "pods";

/// A namespaced name, shown as `namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: NamespaceName,
    /// The name in it.
    pub name: Arc<str>,
}

impl ObjectName {
    /// A name in a namespace.
    pub fn new(namespace: impl Into<NamespaceName>, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
