//! A checker is a cfg of the core's source. Set here, it is the core's alone: by RUSTFLAGS every dependency would be built
//! again for each checker.

fn main() {
    for checker in ["shuttle", "loom"] {
        let feature = format!("CARGO_FEATURE_{}", checker.to_uppercase());
        if std::env::var_os(feature).is_some() {
            println!("cargo::rustc-cfg=clustercache_{checker}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}
