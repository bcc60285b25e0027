#!/bin/bash
# mount(8) as xfstests calls it, first in its PATH: type fuse.bearing is mounted by this build of Bearing (a device NAME-CLUSTER is the cluster's directory
# $WORK/CLUSTER), type fuse.passthrough_ll by libfuse's example over the directory of that name, the rest as always.
arguments=("$@")
type="" options="" rest=()
while [ $# -gt 0 ]; do
    case $1 in
        -t) type=$2; shift 2 ;;
        -o) options=$options,$2; shift 2 ;;
        -o*) options=$options,${1#-o}; shift ;;
        *) rest+=("$1"); shift ;;
    esac
done
# Of a mounted filesystem the kernel alone changes the options.
if [[ $options == *remount* ]]; then exec /bin/mount -i "${arguments[@]}"; fi
handed_on=""
for word in ${options//,/ }; do
    case $word in
        # What the kernel does by itself, and what is always so.
        defaults | sync | async | user_xattr | acl | exec | noexec | diratime | nodiratime | strictatime) ;;
        *) handed_on=$handed_on,$word ;;
    esac
done
device=${rest[0]:-} point=${rest[1]:-}
case $type in
    fuse.bearing)
        # relatime and noatime it knows.
        TMPDIR=$WORK/logs exec "$PROGRAM" mount "$WORK/${device##*-}" "$point" \
            --options "suid,dev,nonempty,$OPTIONS,fsname=$device$handed_on" > /dev/null ;;
    fuse.passthrough_ll)
        handed_on=${handed_on//,relatime/}
        handed_on=${handed_on//,noatime/}
        exec "$PASSTHROUGH" "$point" \
            -o "fsname=$device,source=$WORK/${device##*-},allow_other,default_permissions,suid,dev$handed_on" ;;
    *) exec /bin/mount "${arguments[@]}" ;;
esac
