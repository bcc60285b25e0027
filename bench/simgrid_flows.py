#!/usr/bin/env python3
"""Flows over links, timed by SimGrid: what crates/lab/tests/simgrid.rs holds our simulator against.

apt-get install python3-simgrid; python3 bench/simgrid_flows.py > crates/lab/tests/simgrid.txt
SimGrid's model CM02 with all its corrections off is plain max-min fairness, without latency.
"""
import random
from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, this_actor

PLAIN = ["network/model:CM02", "network/TCP-gamma:0", "network/bandwidth-factor:1",
         "network/latency-factor:1", "network/weight-S:0", "network/crosstraffic:0"]


def main():
    engine = Engine(["simgrid", "--log=root.thres:error"] + ["--cfg=" + option for option in PLAIN])
    draw = random.Random(1)
    capacities = [draw.randrange(10, 200) * 1_000_000 for _ in range(12)]
    flows = [(draw.randrange(0, 20_000), draw.randrange(1, 256) * 1_000_000,
              draw.sample(range(12), draw.randrange(1, 6))) for _ in range(80)]
    zone = NetZone.create_full_zone("all")
    links = [zone.create_link(f"link-{number}", [capacity]).set_latency(0).seal()
             for number, capacity in enumerate(capacities)]
    ended = {}

    def send(number, start, size):
        this_actor.sleep_for(start / 1000)
        Mailbox.by_name(str(number)).put("", size)

    def receive(number):
        Mailbox.by_name(str(number)).get()
        ended[number] = Engine.clock

    for number, (start, size, crossed) in enumerate(flows):
        one, other = (zone.create_host(f"{end}-{number}", 1e9) for end in ("source", "target"))
        route = [LinkInRoute(links[link]) for link in crossed]
        zone.add_route(one.netpoint, other.netpoint, None, None, route, False)
        Actor.create("send", one, send, number, start, size)
        Actor.create("receive", other, receive, number)
    zone.seal()
    engine.run()
    print("# bench/simgrid_flows.py with SimGrid 3.32: links with bytes a second, then flows: the millisecond they")
    print("# begin, bytes, links, and the second they end.")
    for capacity in capacities:
        print("link", capacity)
    for number, (start, size, crossed) in enumerate(flows):
        print("flow", start, size, ",".join(map(str, crossed)), f"{ended[number]:.9f}")


main()
