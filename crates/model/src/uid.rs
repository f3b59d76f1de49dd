//! The identity of an object.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The UID of a Kubernetes object: tells a re-created object from the one before it. Ordered as a byte string.
#[derive(Clone, PartialEq, Eq)]
pub struct Uid(Form);

/// API servers give UUIDs; everybody else may give any text. The form follows from the text, so equal texts are equal.
#[derive(Clone, PartialEq, Eq)]
enum Form {
    /// Lower case, with hyphens. In place: engines keep many and compare them often.
    Uuid(Uuid),
    Text(Arc<str>),
}

impl Uid {
    /// Calls `read` with the text.
    pub fn with_str<T>(&self, read: impl FnOnce(&str) -> T) -> T {
        match &self.0 {
            Form::Uuid(uuid) => read(uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH])),
            Form::Text(text) => read(text),
        }
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let is_same = |uuid: &Uuid| uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH]) == text;
        match Uuid::try_parse(text) {
            Ok(uuid) if is_same(&uuid) => Self(Form::Uuid(uuid)),
            _ => Self(Form::Text(text.into())),
        }
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&Uid> for String {
    fn from(uid: &Uid) -> Self {
        uid.with_str(str::to_owned)
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        self.with_str(|text| text == other)
    }
}

impl PartialEq<&str> for Uid {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Hyphens stand at the same places, and the digits are in order.
            (Form::Uuid(a), Form::Uuid(b)) => a.cmp(b),
            (Form::Text(a), Form::Text(b)) => a.cmp(b),
            _ => self.with_str(|a| other.with_str(|b| a.cmp(b))),
        }
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Uid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Form::Uuid(uuid) => {
                let (high, low) = uuid.as_u64_pair();
                state.write_u64(high);
                state.write_u64(low);
            }
            Form::Text(text) => text.hash(state),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_str(|text| f.pad(text))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_str(|text| write!(f, "{text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 9] = [
        "",
        "0",
        "00000000-0000-0000-0000-000000000000",
        "6B3A55E0-1111-7222-8333-944455556666",
        "6b3a55e0-1111-7222-8333-944455556666",
        "6b3a55e0-1111-7222-8333-944455556667",
        "6b3a55e0-1111-7222-8333-944455556667-x",
        "6b3a55e0111172228333944455556666",
        "w01",
    ];

    #[test]
    fn every_text_comes_back_as_it_was() {
        for text in TEXTS {
            let uid = Uid::from(text);
            assert_eq!((uid.to_string().as_str(), format!("{uid:?}")), (text, format!("{text:?}")));
            assert_eq!(uid, text);
        }
    }

    #[test]
    fn uids_are_ordered_and_equal_as_their_texts_are() {
        for a in TEXTS {
            for b in TEXTS {
                let (one, other) = (Uid::from(a), Uid::from(b));
                assert_eq!(one.cmp(&other), a.cmp(b), "{a} and {b}");
                assert_eq!(one == other, a == b, "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_uuid_stands_in_place() {
        assert_eq!(size_of::<Uid>(), 24);
        assert!(matches!(Uid::from(TEXTS[4]).0, Form::Uuid(_)));
    }
}
