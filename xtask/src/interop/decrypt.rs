//! tshark with a realm's keys: in a capture of RPC over TCP it decrypts and reads what Kerberos has sealed, and finds
//! nothing malformed. Over RDMA it names the calls and decrypts none.

use super::{context::Context, process, realm::Realm, tshark};
use anyhow::ensure;
use std::path::Path;

/// A token of GSS-API that has sealed something (RFC 4121 section 4.2.6.2), as tshark writes it.
const WRAP: &str = "0x0405";

/// The service of RPCSEC_GSS that seals.
const PRIVACY: u32 = 3;

/// What tshark says of a token that it has decrypted.
const DECRYPTED: &str = "Decrypted keytype";

/// What a capture has shown.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sealed {
    /// Sealed arguments and results.
    tokens: usize,
    /// How many of them tshark decrypted.
    decrypted: usize,
}

/// Over TCP, fails if something in the capture is malformed, or if something sealed is not decrypted. Over RDMA, fails
/// if tshark names no call with privacy; [`tshark::judge_all`] looks for malformed packets in all captures.
pub(super) fn judge(context: &Context, realm: &Realm, capture: &Path) -> anyhow::Result<()> {
    let ask = |name: &str, wanted: &str, fields: &[&str]| {
        let mut command = tshark::tshark(capture);
        command.args(["-o", "kerberos.decrypt:TRUE", "-o"]);
        command.arg(format!("kerberos.file:{}", realm.keytab("all").display()));
        command.args(["-Y", wanted, "-T", "fields"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let name = format!("tshark-{name}-{}", tshark::flat_name(context, capture));
        Ok::<_, anyhow::Error>(process::run(context, &name, command)?.expect_success()?.stdout)
    };
    if !context.flavour().is_tcp() {
        let calls = ask("named", &format!("rpc.authgss.service == {PRIVACY} && rpc.msgtyp == 0"), &["rpc.procedure"])?;
        let named = calls.lines().count();
        context.note(format!("tshark names {named} calls with privacy"));
        ensure!(named > 0, "tshark names no call with privacy; see {}", capture.display());
        return Ok(());
    }
    let malformed = ask("malformed", "_ws.malformed", &["frame.number"])?;
    let first = malformed.lines().next();
    ensure!(
        first.is_none(),
        "tshark with the keys marks packets as malformed, first {first:?}; see {}",
        capture.display()
    );
    let said =
        ask("sealed", &format!("spnego.krb5.tok_id == {WRAP} && rpc"), &["spnego.krb5.tok_id", "_ws.expert.message"])?;
    let Sealed { tokens, decrypted } = count(&said);
    context.note(format!("tshark with the keys decrypts {decrypted} of {tokens} sealed bodies"));
    ensure!(
        tokens > 0 && decrypted == tokens,
        "tshark decrypts {decrypted} of {tokens} sealed bodies; see {}",
        capture.display()
    );
    Ok(())
}

/// Counts in lines that have the tokens of a packet and what tshark says of it.
fn count(lines: &str) -> Sealed {
    let mut sealed = Sealed::default();
    for (tokens, messages) in lines.lines().filter_map(|line| line.split_once('\t')) {
        sealed.tokens += tokens.split(',').filter(|token| *token == WRAP).count();
        sealed.decrypted += messages.matches(DECRYPTED).count();
    }
    sealed
}

#[cfg(test)]
mod tests {
    use super::{Sealed, count};

    #[test]
    fn tokens_and_what_is_said_of_them_are_counted() {
        let one = "0x0404,0x0405\tDecrypted keytype 18 usage 24 using learnt key (c7),Used keymap=all num_keys=1)\n";
        let two = "0x0404,0x0405,0x0404,0x0405\tDecrypted keytype 18 usage 24,Decrypted keytype 18 usage 24\n";
        let dark = "0x0404,0x0405\tMissing keytype 18 usage 24\n";
        assert_eq!(count(&[one, two].concat()), Sealed { tokens: 3, decrypted: 3 });
        assert_eq!(count(&[dark, one, "0x0404\t\n"].concat()), Sealed { tokens: 2, decrypted: 1 });
        assert_eq!(count(""), Sealed::default());
    }
}
