//! Extended attributes: listing, reading, setting, removing.

use super::paths::absolute;
use crate::failure::Usage;
use crate::names::{lossy, shown};
use anyhow::{Result, bail};
use bearing_mount::session::Session;
use bearing_mount::{XattrChange, XattrMode};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// `xattr`.
pub fn run(
    session: &Session,
    path: &OsStr,
    (name, value): (Option<&OsStr>, Option<&OsStr>),
    remove: bool,
    as_json: bool,
) -> Result<()> {
    let target = absolute(path)?;
    let change = |name: &OsStr, change| Ok(session.set_xattr(target, name.as_bytes(), change)?);
    match (name, value, remove) {
        (Some(name), None, true) => change(name, XattrChange::Remove),
        (_, _, true) => bail!(Usage("to remove, give the path and the name of the attribute".to_owned())),
        (Some(name), Some(value), false) => {
            let value = value.as_bytes().to_vec();
            change(name, XattrChange::Set { value, mode: XattrMode::Any })
        }
        (Some(name), None, false) => {
            let value = session.xattr(target, name.as_bytes())?;
            if as_json {
                println!("{}", json!({ "name": lossy(name.as_bytes()), "value": lossy(&value) }));
                return Ok(());
            }
            Ok(io::stdout().write_all(&value)?)
        }
        (None, _, false) => list(session, target, as_json),
    }
}

fn list(session: &Session, path: &[u8], as_json: bool) -> Result<()> {
    let mut values: Vec<Value> = Vec::new();
    for name in session.xattrs(path)? {
        let value = session.xattr(path, &name)?;
        if as_json {
            values.push(json!({ "name": lossy(&name), "value": lossy(&value) }));
        } else {
            println!("{}={}", shown(&name), shown(&value));
        }
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&values)?);
    }
    Ok(())
}
