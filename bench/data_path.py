#!/usr/bin/env python3
"""File data through mounts, in turns: libfuse's passthrough_ll over a disk, and Bearing over the same disk.

    bench/data_path.py ROUNDS PASSTHROUGH_LL NAME=PROGRAM... > raw.csv

PASSTHROUGH_LL is the example of libfuse3, built; each PROGRAM a `bearing`. COPIES=2 keeps each byte on two
data servers, ONLY=words runs the cases that have these words in their names. Needs root, fio, and a directory
PLACE (default: ./data-path) that does not exist. Rows: case, subject, round, value, unit; the median ratios to
passthrough go to standard error.
"""
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
PLACE = os.path.abspath(os.environ.get('PLACE', 'data-path'))
COPIES = os.environ.get('COPIES', '1')
ONLY = os.environ.get('ONLY', '')
WRITE = '''
import os, sys
part, file = os.urandom(1 << 20), os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
for _ in range(int(sys.argv[2])):
    assert os.write(file, part) == len(part)
os.fsync(file)
'''


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def mount(name, program, passthrough):
    place = f'{PLACE}/{name}'
    point = f'{place}/mnt'
    os.makedirs(point)
    if program is None:
        os.makedirs(f'{place}/source')
        run(passthrough, '-o', f'source={place}/source,timeout=1', point)
    else:
        run(program, 'up', '--dir', f'{place}/cluster', '--metadata', '1', '--metadata-copies', '1', '--data',
            COPIES, '--data-copies', COPIES, '--detach', '--mount', point)
    return point


def unmount(name, program):
    run('umount', '-l', f'{PLACE}/{name}/mnt')
    if program is not None:
        run(program, 'down', '--dir', f'{PLACE}/{name}/cluster')


def forget_cached():
    run('sync')
    with open('/proc/sys/vm/drop_caches', 'w') as file:
        file.write('3')


def streams(point, count, mib_each):
    """MiB/s of so many programs, each of which writes a file and syncs it."""
    began = time.monotonic()
    writers = [subprocess.Popen([sys.executable, '-c', WRITE, f'{point}/w{number}', str(mib_each)])
               for number in range(count)]
    assert all(writer.wait() == 0 for writer in writers)
    rate = count * mib_each / (time.monotonic() - began)
    for number in range(count):
        os.unlink(f'{point}/w{number}')
    return rate


def sequential(point):
    forget_cached()
    began, read = time.monotonic(), 0
    file = os.open(f'{point}/large', os.O_RDONLY)
    while part := os.read(file, MIB):
        read += len(part)
    os.close(file)
    return read / MIB / (time.monotonic() - began)


def fio(point, what, *more):
    command = ['fio', '--output-format=json', f'--directory={point}', f'--name={what}', '--bs=4k', '--time_based',
               '--runtime=4', '--group_reporting', *more]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    job = json.loads(out[out.index('{'):])['jobs'][0]
    return job['read' if 'read' in what else 'write']['iops']


def random(point, what, jobs):
    forget_cached()
    return fio(point, what, f'--rw={what}', '--filename=random', '--size=256m', f'--numjobs={jobs}',
               '--end_fsync=1')


def beside_syncs(point):
    """Random reads while another program writes files of 128 MiB and syncs each."""
    writer = subprocess.Popen(
        [sys.executable, '-c', f'import sys\nwhile True:\n exec({WRITE!r})', f'{point}/w', '128'])
    try:
        return random(point, 'randread', 1)
    finally:
        writer.kill()
        writer.wait()
        os.unlink(f'{point}/w')


CASES = {
    'write and fsync, 1 stream': ('MiB/s', lambda point: streams(point, 1, 256)),
    'write and fsync, 4 streams': ('MiB/s', lambda point: streams(point, 4, 256)),
    'read front to back, cold': ('MiB/s', sequential),
    'random reads of 4 KiB, cold, 1 program': ('per s', lambda point: random(point, 'randread', 1)),
    'random reads of 4 KiB, cold, 8 programs': ('per s', lambda point: random(point, 'randread', 8)),
    'random reads of 4 KiB, cold, 1 program, beside a writer that syncs': ('per s', beside_syncs),
    'random writes of 4 KiB, 1 program': ('per s', lambda point: random(point, 'randwrite', 1)),
    '4 KiB and fsync each time, 1 program': (
        'per s', lambda point: fio(point, 'write', '--rw=write', '--size=64m', '--fsync=1')),
    '4 KiB and fsync each time, 8 programs': (
        'per s', lambda point: fio(point, 'write', '--rw=write', '--size=64m', '--fsync=1', '--numjobs=8')),
}


def main():
    rounds, passthrough = int(sys.argv[1]), sys.argv[2]
    subjects = {'passthrough': None} | dict(subject.split('=') for subject in sys.argv[3:])
    os.makedirs(PLACE)
    rows = csv.writer(sys.stdout)
    rows.writerow(['case', 'subject', 'round', 'value', 'unit'])
    cases = {case: how for case, how in CASES.items() if ONLY in case}
    found, points = {}, {}
    try:
        for name, program in subjects.items():
            points[name] = mount(name, program, passthrough)
            for file in ('large', 'random'):
                run('dd', 'if=/dev/urandom', f'of={points[name]}/{file}', 'bs=1M', 'count=256', 'conv=fsync',
                    'status=none')
        for number in range(rounds):
            order = list(subjects) if number % 2 == 0 else list(subjects)[::-1]
            for case, (unit, measure) in cases.items():
                for name in order:
                    value = measure(points[name])
                    found.setdefault((case, name), []).append(value)
                    rows.writerow([case, name, number, f'{value:.1f}', unit])
                    sys.stdout.flush()
    finally:
        for name in points:
            unmount(name, subjects[name])
        shutil.rmtree(PLACE)
    for case in cases:
        for name in list(subjects)[1:]:
            pairs = zip(found[case, name], found[case, 'passthrough'])
            ratios = sorted(value / base for value, base in pairs)
            print(f'{case}: {name} {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) of '
                  f'{statistics.median(found[case, "passthrough"]):.0f}', file=sys.stderr)


main()
