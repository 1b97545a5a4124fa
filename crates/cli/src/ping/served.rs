//! What a server serves: the versions of NFS, the session that it makes, and the features that it has where the URL
//! leads. It is asked without changing anything there.

use crate::session::{Sessions, version_2, version_3, version_4};
use anyhow::{Context, Result};
use rpcrdma::client::{
    NfsUrl,
    command::{Identity, is_no_such_version},
};
use rpcrdma_nfs::attr::FileType;
use rpcrdma_nfs_client::{
    Error, Files, Handle,
    v4::{About, AboutSession, BackChannel, Callbacks, Feature, Nfs4, served_minors},
};
use rpcrdma_oncrpc::Client;
use serde_json::{Value, json};
use std::io::{self, Write};

/// What is known of a server.
pub(super) struct Served {
    /// The version that is spoken.
    spoken: String,
    /// All versions that it serves, or why that is unknown.
    versions: Result<Vec<String>>,
    /// Why there is no session, if version 4 is spoken without one.
    about: Option<Result<About>>,
    /// The features of the file to which the URL leads.
    features: Option<Result<Vec<Feature>>>,
}

impl Served {
    /// Asks a server that has answered `client`.
    pub(super) async fn ask(
        sessions: &Sessions,
        url: &NfsUrl,
        identity: &Identity,
        client: &Client,
        callbacks: Option<&Callbacks>,
    ) -> Self {
        let caller = version_4(identity, client);
        let versions = versions(client, &caller).await;
        if client.version() != rpcrdma_nfs::v4::VERSION {
            return Self { spoken: client.version().to_string(), versions, about: None, features: None };
        }
        let nfs = match sessions.over(url, &caller, callbacks).await {
            Ok(nfs) => nfs,
            Err(error) => {
                return Self { spoken: "4".into(), versions, about: Some(Err(error.into())), features: None };
            }
        };
        Self {
            spoken: format!("4.{}", nfs.minor()),
            versions,
            about: Some(nfs.about().await.map_err(|error| Error::from(error).into())),
            features: Some(features(&nfs, url).await),
        }
    }

    /// As an object.
    pub(super) fn object(&self) -> Value {
        let mut object = json!({ "version": self.spoken });
        match &self.versions {
            Ok(versions) => object["versions"] = json!(versions),
            Err(error) => object["versions_error"] = format!("{error:#}").into(),
        }
        match &self.about {
            None => {}
            Some(Err(error)) => object["session_error"] = format!("{error:#}").into(),
            Some(Ok(about)) => {
                object["lease_s"] = about.lease.as_secs().into();
                if let Some(session) = &about.session {
                    object["session"] = json!({
                        "slots": session.slots, "max_call": session.max_call, "max_reply": session.max_reply,
                        "max_kept_reply": session.max_kept_reply, "max_operations": session.max_operations,
                        "back_channel": name(session.back_channel),
                    });
                }
            }
        }
        match &self.features {
            None => {}
            Some(Err(error)) => object["features_error"] = format!("{error:#}").into(),
            Some(Ok(features)) => {
                let of = |feature: &Feature| (feature.name().to_lowercase(), features.contains(feature).into());
                object["features"] = Value::Object(Feature::ALL.iter().map(of).collect());
            }
        }
        object
    }

    /// For people.
    pub(super) fn tell(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { spoken, .. } = self;
        match &self.versions {
            Ok(versions) => writeln!(out, "NFS version {spoken}; the server serves {}", versions.join(", "))?,
            Err(error) => {
                writeln!(out, "NFS version {spoken}; the server does not say what else it serves: {error:#}")?
            }
        }
        match &self.about {
            None => {}
            Some(Err(error)) => writeln!(out, "no session: {error:#}")?,
            Some(Ok(about)) => tell_about(about, out)?,
        }
        match &self.features {
            None => {}
            Some(Err(error)) => writeln!(out, "features are not known: {error:#}")?,
            Some(Ok(features)) => {
                let names = |has| {
                    let names = Feature::ALL.iter().filter(|feature| features.contains(feature) == has);
                    let names: Vec<_> = names.map(|feature| feature.name()).collect();
                    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
                };
                writeln!(out, "features: {}; not there: {}", names(true), names(false))?;
            }
        }
        Ok(())
    }
}

fn tell_about(about: &About, out: &mut impl Write) -> io::Result<()> {
    if let Some(session) = &about.session {
        let AboutSession { slots, max_call, max_reply, max_kept_reply, max_operations, back_channel, .. } = *session;
        writeln!(out, "session of {slots} slots, {max_operations} operations in a call")?;
        writeln!(
            out,
            "calls up to {max_call} bytes, replies up to {max_reply} bytes; the server keeps replies up to \
             {max_kept_reply} bytes for repeated calls"
        )?;
        writeln!(
            out,
            "back channel {}",
            match back_channel {
                BackChannel::NotAsked => "not asked for",
                BackChannel::Refused => "refused by the server",
                BackChannel::Broken => "broken: the server says that it cannot call",
                BackChannel::Works => "stands, and the server reports no failure",
            }
        )?;
    }
    writeln!(out, "the server keeps what a silent client holds for {} s", about.lease.as_secs())
}

/// The name for programs.
fn name(back_channel: BackChannel) -> &'static str {
    match back_channel {
        BackChannel::NotAsked => "not asked",
        BackChannel::Refused => "refused",
        BackChannel::Broken => "broken",
        BackChannel::Works => "works",
    }
}

/// All versions that the server serves, the lowest first.
async fn versions(client: &Client, caller: &Client) -> Result<Vec<String>> {
    let mut versions = Vec::new();
    for (version, client) in [("2", version_2(client)), ("3", version_3(client))] {
        match client.null().await {
            Ok(()) => versions.push(version.to_owned()),
            Err(error) if is_no_such_version(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match served_minors(caller).await {
        Ok(minors) => versions.extend(minors.into_iter().map(|minor| format!("4.{minor}"))),
        Err(error) if error.is_no_version_4() => {}
        Err(error) => return Err(Error::from(error).into()),
    }
    Ok(versions)
}

/// The features at the URL's directory, or in the directory that its file is in.
async fn features(nfs: &Nfs4, url: &NfsUrl) -> Result<Vec<Feature>> {
    let files = Files::from(nfs.clone());
    let root = nfs.root().await.map_err(Error::from)?;
    let root = Handle::from(&root.file);
    let mut found = files.walk(&root, &url.path, true).await?;
    if found.attributes.file_type != FileType::Directory {
        let path: Vec<_> = url.path.split(|octet| *octet == b'/').filter(|name| !name.is_empty()).collect();
        let above = path.split_last().map(|(_, above)| above.join(&b'/')).unwrap_or_default();
        found = files.walk(&root, &above, true).await?;
    }
    let directory =
        rpcrdma_nfs::v4::Handle::new(found.file.as_slice()).context("the server gives no handle of the directory")?;
    let mut features = Vec::new();
    for feature in Feature::ALL {
        if nfs.has(&directory, feature).await.map_err(Error::from)? {
            features.push(feature);
        }
    }
    Ok(features)
}
