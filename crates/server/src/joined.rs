//! What a host that joined a cluster writes down: what every host of it knows, and its own servers.

use crate::cluster::{Cluster, DaemonName, Layout};
use crate::config::{DaemonFile, EtcdFile};
use crate::init::{make_directory, metrics_beside, refuse_leftovers};
use crate::{StartError, toml_file};
use bearing_env::write_private;
use bearing_proto::join::{EtcdAccess, Welcome};
use bearing_proto::keys::Key;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A directory in which no cluster lies yet.
pub fn check_free(layout: &Layout) -> Result<(), StartError> {
    if layout.cluster_file().exists() {
        return Err(StartError::Refused(format!(
            "{} holds a cluster already; join with another --dir, or remove it if its data may go",
            layout.root().display()
        )));
    }
    refuse_leftovers(layout)
}

/// Writes all of it, `cluster.toml` last. Gives the servers of this host, whose configurations were written.
pub fn write(
    layout: &Layout,
    welcome: &Welcome,
    listen: Option<IpAddr>,
) -> Result<Vec<DaemonName>, StartError> {
    let file = layout.cluster_file();
    let cluster: Cluster = toml_file::parse(&file, &welcome.cluster)?;
    cluster.check().map_err(StartError::Refused)?;
    make_directory(&layout.secrets())?;
    for (path, key) in
        [(layout.cluster_key(), welcome.cluster_key), (layout.enrolment_key(), welcome.enrolment_key)]
    {
        let text = Key::new(key).to_hex() + "\n";
        write_private(&path, &text).map_err(|error| StartError::Refused(error.to_string()))?;
    }
    let etcd = welcome.etcd.as_ref().map(|access| write_etcd(layout, access)).transpose()?;
    let mut names = Vec::new();
    for entry in &welcome.servers {
        let listen = listen.map(|ip| SocketAddr::new(ip, entry.address.port()));
        let name = DaemonName::of(entry.server);
        make_directory(&layout.daemon(name))?;
        let file = DaemonFile::new(name, etcd.clone());
        let metrics = metrics_beside(entry.address);
        DaemonFile { address: Some(entry.address), listen, metrics, ..file }.write(layout, name)?;
        names.push(name);
    }
    let heading = "# A Bearing cluster, as it was when this host joined it. Servers and clients of this host read \
                   this file.\n";
    toml_file::write(&file, heading, &cluster)?;
    Ok(names)
}

fn write_etcd(layout: &Layout, access: &EtcdAccess) -> Result<EtcdFile, StartError> {
    let write = |name: &str, text: &String| {
        let path = layout.secrets().join(name);
        write_private(&path, text).map_err(|error| StartError::Refused(error.to_string()))?;
        std::path::absolute(&path).map_err(|error| StartError::file("find", &path, &error))
    };
    let authority: Option<PathBuf> =
        access.authority.as_ref().map(|text| write("etcd-authority.pem", text)).transpose()?;
    let mut file = EtcdFile { endpoints: access.endpoints.clone(), authority, ..EtcdFile::default() };
    if let Some((certificate, key)) = &access.identity {
        file.certificate = Some(write("etcd-certificate.pem", certificate)?);
        file.key = Some(write("etcd-key.pem", key)?);
    }
    Ok(file)
}
