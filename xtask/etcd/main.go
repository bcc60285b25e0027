// Command etcd is etcd's own server, as its module in the Go proxy has it: the one that Debian packages is too
// old for us. Tests run it; `cargo xtask etcd` builds it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
