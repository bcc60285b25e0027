use super::event::client_of;
use super::*;
use proptest::prelude::*;

fn read(text: &[u8], format: Option<Format>) -> (Vec<Event>, Tally, Format) {
    let mut reader = Reader::new(text, format).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        events.push(event);
    }
    (events, reader.tally().clone(), reader.format())
}

/// Kinds and names, as `lookup /a/b` or `rename /a > /b`.
fn said(text: &str) -> (Vec<String>, Tally, Format) {
    let (events, tally, format) = read(text.as_bytes(), None);
    let said = events.iter().map(|event| {
        let to = event.to.as_ref().map_or(String::new(), |to| format!(" > {to}"));
        format!("{} {}{to}", event.kind.name(), event.path)
    });
    (said.collect(), tally, format)
}

const BERKELEY: &str = "t=842425208, hid=9, uid=109, pid=0, sys=STAT, dev=9, fid=4\n\
t=842425209.5, hid=9, uid=109, pid=0, sys=GETDIRENTRIES, dev=9, fid=2\n\
t=842425210, hid=8, uid=109, pid=0, sys=SYNC, dev=9, fid=2\n\
t=842425211, hid=8, uid=109, pid=0, sys=OPEN\n";

const HDFS: &str = "2020-02-29 23:59:59,500 INFO FSNamesystem.audit: allowed=true\tugi=a (auth:TOKEN) via b\tip=/10.0.0.1\tcmd=rename (options=[TO_TRASH])\tsrc=/x y\tdst=/z=1\tperm=u:g:rw-r--r--\tproto=rpc\n\
2020-03-01 00:00:00,500 INFO FSNamesystem.audit: allowed=true  ugi=a  ip=/10.0.0.2  cmd=getfileinfo  src=/x y  dst=null  perm=null  proto=rpc\n\
2020-03-01 00:00:01,500 INFO FSNamesystem.audit: allowed=false ugi=a ip=/10.0.0.2 cmd=mkdirs src=/no dst=null perm=null\n\
2020-03-01 00:00:01,500 INFO FSNamesystem.audit: allowed=true ugi=a ip=/10.0.0.2 cmd=addCachePool src={poolName:p} dst=null perm=null\n\
2020-03-01 00:00:02 INFO something else\n";

const JUICEFS: &str = "2022.05.11 11:35:57.267 [uid:501,gid:20,pid:44307] lookup (1,a dir): OK (7,[drwxr-xr-x:0040755,2,501,20,1,1,1,4096]) <0.000234>\n\
2022.05.11 11:35:57.268000 [uid:501,gid:20,pid:44307] create (7,f,(1).txt,-rw-r--r--:0100644): OK (9,[-rw-r--r--:0100644,1,501,20,1,1,1,0]) [fh:1] <0.000234>\n\
2022.05.11 11:35:57.269 [uid:501,gid:20,pid:44307] write (9,100,0,1): OK <0.000234>\n\
2022.05.11 11:35:57.270 [uid:501,gid:20,pid:44307] rename (7,f,(1).txt,1,g,0): OK <0.000234>\n\
2022.05.11 11:35:57.271 [uid:501,gid:20,pid:44307] getattr (9): OK (9,[-rw-r--r--:0100644,1,501,20,1,1,1,0]) <0.000234>\n\
2022.05.11 11:35:57.272 [uid:501,gid:20,pid:44307] getattr (1): OK (1,[drwxr-xr-x:0040755]) <0.000234>\n\
2022.05.11 11:35:57.272 [uid:501,gid:20,pid:44307] lookup (1,gone): no such file or directory <0.000100>\n\
2022.05.11 11:35:57.273 [uid:0,gid:0,pid:1] statfs (1): OK (1,2,3,4) <0.000001>\n";

const ELLARD: &str = "100.5 31.03f7 30.0801 T C3 b653f2e4 3 lookup fh aa01 name \"in box\" con = 130 len = 400\n\
100.6 30.0801 31.03f7 T R3 b653f2e4 3 lookup OK fh bb02 ftype 2 mode 1c0\n\
100.7 31.03f7 30.0801 T C3 b753f2e4 8 create fh bb02 name \".lock\" how X con = 130 len = 400\n\
100.8 30.0801 31.03f7 T R3 b753f2e4 8 create OK fh cc03 ftype 1\n\
100.9 31.03f7 30.0801 T C3 b853f2e4 e rename fh bb02 name \".lock\" fh2 aa01 name2 \"kept\" con = 130\n\
100.95 30.0801 31.03f7 T R3 b853f2e4 e rename OK\n\
101.0 31.03f7 30.0801 T C3 b953f2e4 7 write fh cc03 off 0 count 2000 stable U con = 130\n\
101.1 31.03f7 30.0801 T C3 ba53f2e4 12 fsstat con = 130\n\
101.2 31.03f7 30.0801 U C2 7954c6da b rename fh bb02 fn \"old\" fh2 aa01 fn2 \"new\" con = 130 len = 400\n\
101.3 31.03f7 30.0801 T C3 d3d2f2e4 15 commit file cc03 off 0 count 0 con = 130 len = 400\n\
101.4 31.03f7 30.0801 U C3 3892f72d e rename SHORT PACKETcon = 130 len = 400 con = 130 len = 400\n";

const MICROSOFT: &str = "BeginHeader\n\
                DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID, New Column, IrpPtr, FileObject, FileName\n\
            FileIoCreate,  TimeStamp,     Process Name ( PID),   ThreadID, CPU, Options, Attributes, FileName, ParsedOptions\n\
EndHeader\n\
                DiskRead,     260959, p0 (2004),       9700, 1, 0x1, 0x2, \"Disk8:\\s0\\a, b\"\n\
            FileIoCreate,     260970, p0 (2004),       9700, 0, 0x02000021, 0x80, \"C:\\s0\\new\", x\n\
            FileIoCreate,     260971, p0 (2004),       9700, 0, 0x01000000, 0x80, \"C:\\s0\\new\\f\", x\n\
                 Unknown,     260972\n\
            FileIoCreate,     26oops, p0 (2004),       9700, 0, 0x01000000, 0x80, \"C:\\s0\", x\n";

#[test]
fn berkeley_names_files_by_device_and_number() {
    let (said, tally, format) = said(BERKELEY);
    assert_eq!((format, said), (Format::Berkeley, vec!["lookup /9/4".to_owned(), "list /9/2".to_owned()]));
    assert_eq!((tally.others["SYNC"], tally.malformed, tally.examples[0].line), (1, 1, 4));
    assert_eq!(tally.last_us, 1_500_000);
}

#[test]
fn an_audit_log_has_spaces_and_signs_in_its_values_and_words_that_are_no_paths() {
    let (said, tally, format) = said(HDFS);
    assert_eq!(
        (format, said),
        (Format::HdfsAudit, vec!["rename /x y > /z=1".to_owned(), "lookup /x y".to_owned()])
    );
    assert_eq!(tally.last_us, 1_000_000);
    assert_eq!((tally.others["mkdirs, refused"], tally.others["addCachePool"], tally.malformed), (1, 1, 1));
}

#[test]
fn juicefs_names_are_learnt_from_lookups_and_creations() {
    let (said, tally, format) = said(JUICEFS);
    let expected = [
        "lookup /a dir",
        "create /a dir/f,(1).txt",
        "write /a dir/f,(1).txt",
        "rename /a dir/f,(1).txt > /g",
        "lookup /g",
        "lookup /",
        "lookup /gone",
    ];
    assert_eq!((format, said), (Format::JuiceFs, expected.map(str::to_owned).to_vec()));
    assert_eq!((tally.others["statfs"], tally.malformed), (1, 0));
}

#[test]
fn nfs_handles_are_named_by_a_call_with_its_reply() {
    let (said, tally, format) = said(ELLARD);
    let root = format!("/#{:x}", client_of(b"aa01"));
    let expected = [
        format!("lookup {root}/in box"),
        format!("create {root}/in box/.lock"),
        format!("rename {root}/in box/.lock > {root}/kept"),
        format!("write {root}/kept"),
        format!("rename {root}/in box/old > {root}/new"),
    ];
    assert_eq!((format, said), (Format::Ellard, expected.to_vec()));
    assert_eq!((tally.others["fsstat"], tally.others["commit"], tally.malformed), (1, 1, 1));
}

fn juicefs(calls: &[&str]) -> (Vec<String>, Tally) {
    let line = |call: &&str| format!("2022.05.11 11:35:57.267 [uid:0,gid:0,pid:1] {call} <0.000010>\n");
    let (said, tally, format) = said(&calls.iter().map(line).collect::<String>());
    assert_eq!(format, Format::JuiceFs);
    (said, tally)
}

#[test]
fn what_juicefs_renames_is_known_by_its_new_name_with_all_that_is_in_it() {
    let (said, _) = juicefs(&[
        "mkdir (1,a,drwxr-xr-x:0040755): OK (2,[])",
        "mkdir (2,b,drwxr-xr-x:0040755): OK (3,[])",
        "create (3,x.tmp,-rw-r--r--:0100644): OK (4,[-]) [fh:1]",
        "rename (3,x.tmp,3,x,0): OK",
        "getattr (4): OK (4,[-])",
        "rename (2,b,1,b,0): OK",
        "rename (1,a,3,a,0): OK",
        "getattr (4): OK (4,[-])",
        "getattr (2): OK (2,[-])",
        "rename (1,b,1,c,0): no such file or directory",
        "getattr (3): OK (3,[-])",
    ]);
    let looked: Vec<&str> =
        said.iter().map(String::as_str).filter(|said| said.starts_with("lookup")).collect();
    assert_eq!(looked, ["lookup /a/b/x", "lookup /b/x", "lookup /b/a", "lookup /b"]);
}

#[test]
fn names_in_juicefs_have_commas_and_numbers_in_them() {
    let (said, tally) = juicefs(&[
        "lookup (1,d): OK (5,[-])",
        "rename (1,a,1,b, c.txt,0): OK",
        "rename (1,a,2021,b.csv,5,c.csv,0): OK",
        "rename (1,old,1,7): OK",
        "mknod (1,pipe,prw-r--r--:010644,0x00000000): OK (9,[-])",
        "getattr (9): OK (9,[-])",
        "symlink (1,link,/data/a,b/c): OK (12,[-])",
        "symlink (1,other, one,../a): OK (13,[-])",
        "create (1,a, b,-rw-r--r--:0100644,0x8241): OK (14,[-]) [fh:1]",
        "rename (1,a,77,b,78,c,0): OK",
    ]);
    let expected = [
        "lookup /d",
        "rename /a > /b, c.txt",
        "rename /a,2021,b.csv > /d/c.csv",
        "rename /old > /7",
        "create /pipe",
        "lookup /pipe",
        "create /link",
        "create /other, one",
        "create /a, b",
    ];
    assert_eq!((said, tally.malformed), (expected.map(str::to_owned).to_vec(), 1));
}

#[test]
fn a_mount_is_one_client_of_juicefs() {
    let line =
        |pid| format!("2022.05.11 11:35:57.267 [uid:0,gid:0,pid:{pid}] getattr (1): OK (1,[-]) <0.1>\n");
    let (events, ..) = read((line(7) + &line(8)).as_bytes(), None);
    assert_eq!(events[0].client, events[1].client);
}

fn audit(line: &str) -> String {
    format!(
        "2020-02-29 23:59:59,500 INFO FSNamesystem.audit: allowed=true\tugi=a\tip=/10.0.0.1\t{line}\tproto=rpc\n"
    )
}

#[test]
fn audit_logs_name_files_in_several_ways() {
    let text: String = [
        "cmd=concat\tsrc=[/p1, /p2]\tdst=/target\tperm=u:g:rw-r--r--",
        "cmd=rename\tsrc=viewfs://c/x dst=1\tdst=hdfs://host:8020/out/x perm=2\tperm=null",
        "cmd=open\tsrc=/in/my dst=1.txt\tdst=null\tperm=null",
        "cmd=removeAclEntries\tsrc=/a\tdst=null\tperm=null",
        "cmd=quotaUsage\tsrc=/a\tdst=null\tperm=null",
        "cmd=getStoragePolicy\tsrc=/a\tdst=null\tperm=null",
        "cmd=getDelegationToken\tsrc=null\tdst=null\tperm=null",
        "cmd=rollEditLog\tsrc=/a\tdst=null\tperm=null",
    ]
    .map(audit)
    .concat();
    let (said, tally, _) = said(&text);
    let expected = [
        "update /target",
        "rename /x dst=1 > /out/x perm=2",
        "open /in/my dst=1.txt",
        "update /a",
        "lookup /a",
        "lookup /a",
    ];
    assert_eq!(said, expected);
    assert_eq!((tally.others["getDelegationToken, of no path"], tally.others["rollEditLog"]), (1, 1));
}

#[test]
fn a_format_is_what_most_lines_are() {
    let odd = audit("cmd=open\tsrc=/q/x, t=5, sys=STAT, dev=1, fid=2\tdst=null");
    let (said, _, format) = said(&(odd.clone() + &odd + &audit("cmd=open\tsrc=/y\tdst=null")));
    assert_eq!((format, said.len()), (Format::HdfsAudit, 3));
}

#[test]
fn a_plain_trace_begins_with_its_header() {
    let refused = |text: &str| Reader::new(text.as_bytes(), Some(Format::Plain)).err().unwrap().to_string();
    let turned = refused("client,time_us,operation,path,to\n7,1000,lookup,/a\n");
    assert!(turned.contains(HEADER) && turned.contains("client,time_us"), "{turned}");
    assert!(refused("5,1,lookup,/a\n").contains(HEADER));
    let marked = format!("\u{feff}# of Monday\n{HEADER} \n5,1,lookup,/a\n");
    let (events, tally, format) = read(marked.as_bytes(), None);
    assert_eq!((events.len(), tally.malformed, format), (1, 0, Format::Plain));
}

#[test]
fn names_that_are_not_utf_8_stay_apart_and_are_written_as_they_are() {
    let text = [HEADER.as_bytes(), b"\n0,1,create,/\xe9\n1,1,create,/\xe8\n"].concat();
    let (events, ..) = read(&text, None);
    assert_ne!(events[0].path, events[1].path);
    let written: Vec<String> = events.iter().map(line_of).collect();
    assert_eq!(written, ["0,1,create,/\\xe9", "1,1,create,/\\xe8"]);
    let again = [HEADER, &written[0], &written[1]].join("\n");
    assert_eq!(read(again.as_bytes(), None).0, events);
}

#[test]
fn what_is_earlier_than_the_first_is_counted() {
    let text = format!("{HEADER}\n5000000,1,lookup,/a\n4500000,1,lookup,/a\n1000000,1,lookup,/b\n");
    let (events, tally, _) = read(text.as_bytes(), None);
    assert_eq!((events[2].at_us, tally.earlier), (0, 1));
}

#[test]
fn what_is_shown_of_a_trace_does_nothing_to_a_terminal() {
    let text = format!("{HEADER}\n1,1,loo\u{1b}[31mkup{},/a\n\u{1b}[0m,x\n", "x".repeat(5000));
    let (_, tally, _) = read(text.as_bytes(), None);
    let word = tally.others.keys().next().unwrap();
    assert!(word.chars().count() == 40 && !word.contains('\u{1b}'), "{word:?}");
    assert!(!tally.examples[0].text.contains('\u{1b}'));
}

#[test]
fn microsofts_columns_are_found_by_name_wherever_they_stand() {
    let (said, tally, format) = said(MICROSOFT);
    let expected = ["read /Disk8:/s0/a, b", "mkdir /C:/s0/new", "open /C:/s0/new/f"];
    assert_eq!((format, said), (Format::Microsoft, expected.map(str::to_owned).to_vec()));
    assert_eq!(tally.malformed, 2);
    let lines: Vec<(u64, &str)> = tally.examples.iter().map(|one| (one.line, one.why)).collect();
    let expected = [(8, "the header does not name such an event"), (9, "its TimeStamp is no number")];
    assert_eq!(lines, expected);
}

#[test]
fn what_is_no_trace_is_refused_with_its_first_line() {
    let error = Reader::new(&b"\nhello\nworld\n"[..], None).err().unwrap().to_string();
    assert!(error.contains("hello") && error.contains("hdfs-audit"), "{error}");
    assert!(matches!(Reader::new(&b""[..], None).err(), Some(TraceError::Empty)));
    let error = Reader::new(&b"\x1f\x8b\x08"[..], None).err().unwrap().to_string();
    assert_eq!(error, "it is compressed; pipe it in: gzip -dc FILE | bearing lab trace inspect -");
    assert!(matches!(Reader::new(&b"\xff\xfe\x00"[..], None).err(), Some(TraceError::Unknown(_))));
}

#[test]
fn a_line_without_end_is_one_malformed_line() {
    let mut text = format!("{HEADER}\n1,2,lookup,/a\n").into_bytes();
    text.extend(std::iter::repeat_n(b'x', 3 << 20));
    text.extend(b"\n3,2,lookup,/b\n");
    let (events, tally, _) = read(&text, None);
    assert_eq!((events.len(), tally.lines, tally.malformed), (2, 4, 1));
    assert_eq!(tally.examples[0].why, "it is longer than a line may be");
}

#[test]
fn when_there_are_too_many_handles_all_are_forgotten() {
    let mut handles = handles::Handles::of_at_most(3);
    (10..13).for_each(|handle| handles.learn(handle, 1, "a"));
    assert_eq!(handles.path(12), "/#1/a");
    handles.learn(12, 1, "again");
    handles.learn(13, 1, "b");
    assert_eq!([12, 13].map(|handle| handles.path(handle)), ["/#c", "/#1/b"]);
}

#[test]
fn a_tree_that_goes_round_ends() {
    let mut handles = handles::Handles::default();
    handles.learn(1, 2, "a");
    handles.learn(2, 1, "b");
    assert!(handles.path(1).len() < 2000);
}

fn paths() -> impl Strategy<Value = String> {
    "(/[ -~\t\r\u{e4}\u{4e2d}]{0,12}){1,4}"
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0u64..1 << 40, any::<u64>(), 0..Kind::ALL.len(), paths(), proptest::option::of(paths()));
    let event = event.prop_map(|(at_us, client, kind, path, to)| Event {
        at_us,
        client,
        kind: Kind::ALL[kind],
        path,
        to,
    });
    proptest::collection::vec(event, 1..40)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(mut events in events()) {
        let zero = events[0].at_us;
        let lines: Vec<String> = std::iter::once(HEADER.to_owned()).chain(events.iter().map(line_of)).collect();
        let (again, tally, format) = read((lines.join("\n") + "\n").as_bytes(), None);
        events.iter_mut().for_each(|event| event.at_us = event.at_us.saturating_sub(zero));
        prop_assert_eq!((again, tally.malformed, format), (events, 0, Format::Plain));
    }

    /// Anything at all, and real lines with damage in them: every line is accounted for.
    #[test]
    fn no_line_makes_a_reader_fail(which in 0..Format::ALL.len(), noise: Vec<u8>, cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20)) {
        let whole = [&format!("{HEADER}\n5,1,rename,\"/a,\"\"b\",/c\\x0ad\n"), MICROSOFT, BERKELEY, HDFS, ELLARD, JUICEFS].map(|text| text.as_bytes().to_vec());
        let mut text = whole[which].clone();
        for (at, byte) in cuts {
            let at = at.index(text.len());
            text[at] = byte;
        }
        text.extend(noise);
        // No damage makes it look compressed.
        prop_assume!(text.first().is_some_and(|byte| byte.is_ascii_graphic()) && !text.starts_with(b"BZh"));
        for format in Format::ALL {
            if let Err(TraceError::Header(_)) = Reader::new(&text[..], Some(format)) {
                continue;
            }
            let (events, tally, _) = read(&text, Some(format));
            prop_assert_eq!(events.len() as u64, tally.events());
            prop_assert!(tally.events() + tally.others.values().sum::<u64>() + tally.malformed <= tally.lines);
            prop_assert!(events.iter().all(|event| event.path.starts_with('/')));
        }
    }
}
