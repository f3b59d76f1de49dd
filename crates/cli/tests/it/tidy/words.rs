//! Words that announce unfinished work.

use super::{assert_none, crate_directories, files_below, read, relative};

const BANNED: &[&str] = &["todo!", "unimplemented!", "fixme", "for now", "simplified"];

#[test]
fn nothing_in_the_sources_is_announced_as_unfinished() {
    let mut offences = Vec::new();
    for file in crate_directories().iter().flat_map(|directory| files_below(&directory.join("src"))) {
        for (index, line) in read(&file).lines().enumerate() {
            let line = line.to_lowercase();
            for word in BANNED.iter().filter(|word| line.contains(**word)) {
                offences.push(format!("{}:{}: {word}", relative(&file), index + 1));
            }
        }
    }
    assert_none("what is in src is finished, or an issue says what is missing", &offences);
}
