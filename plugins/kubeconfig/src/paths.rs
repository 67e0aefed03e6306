//! Which files `$KUBECONFIG` means.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The files that kubectl would read: those of the variable, in its order, without empty ones and repeats; where it is not set or
/// empty, `config` in `.kube` in the home directory.
pub(crate) fn named(variable: Option<OsString>, home: Option<PathBuf>) -> Vec<PathBuf> {
    match variable.filter(|text| !text.is_empty()) {
        Some(text) => distinct(std::env::split_paths(&text)),
        None => distinct(home.map(|home| home.join(".kube").join("config"))),
    }
}

/// As absolute paths: where the program goes later is of no matter.
pub(crate) fn distinct(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    paths
        .into_iter()
        .filter(|path| !path.as_os_str().is_empty())
        .map(|path| absolute(&path))
        .filter(|path| seen.insert(path.clone()))
        .collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn given(variable: Option<&str>, home: Option<&str>) -> Vec<PathBuf> {
        named(variable.map(OsString::from), home.map(PathBuf::from))
    }

    #[test]
    fn the_variable_wins_in_its_order_without_empties_and_repeats() {
        let files = given(Some("/b:/a::/b:/c/../a"), Some("/home/u"));
        assert_eq!(files, ["/b", "/a", "/c/../a"].map(PathBuf::from));
        assert!(given(Some(":"), Some("/home/u")).is_empty());
    }

    #[test]
    fn without_it_the_home_directory_has_the_file() {
        let file = [PathBuf::from("/home/u/.kube/config")];
        assert_eq!(given(None, Some("/home/u")), file);
        assert_eq!(given(Some(""), Some("/home/u")), file);
        assert!(given(None, None).is_empty());
    }

    #[test]
    fn a_relative_path_is_meant_from_where_the_program_is_now() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(given(Some("a/b"), None), [here.join("a/b")]);
    }
}
