// Judges what simulated clients did with names, and were told of them, by porcupine: a linearizability
// checker that shares nothing with ours but the history. Each name is a register of its own; it holds no
// node, a node, or one that nobody has said yet.
//
//	cargo run --bin bearing-sim -- --seeds 25 --copies 3 --names FOLDER
//	go run . FOLDER/*.names
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	none    = int64(0)
	unknown = int64(-1)
	// How long one name may take.
	patience = 60 * time.Second
)

// What an operation does with a name, or says of it.
type step struct {
	name string
	what string
	node int64
	// Nobody was told what came of it.
	open bool
}

// The states that a name may be in after a step, from one state.
func after(state int64, s step) []int64 {
	done := effect(state, s)
	if s.open {
		return append(done, state)
	}
	return done
}

func effect(state int64, s step) []int64 {
	held := state != none
	switch s.what {
	case "puts":
		if !held {
			return []int64{s.node}
		}
	case "takes":
		if held {
			return []int64{none}
		}
	case "leaves":
		// Between two names of one node a rename does nothing.
		if held {
			return []int64{none, state}
		}
	case "replaces":
		return []int64{unknown}
	case "swaps":
		if held {
			return []int64{unknown}
		}
	case "meets":
		if held {
			return []int64{state}
		}
	case "misses":
		if !held {
			return []int64{none}
		}
	case "sees":
		if held && (state == s.node || state == unknown) {
			return []int64{s.node}
		}
	default:
		panic("what is this: " + s.what)
	}
	return nil
}

var model = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		names := map[string][]porcupine.Operation{}
		for _, operation := range history {
			name := operation.Input.(step).name
			names[name] = append(names[name], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range names {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []interface{} { return []interface{}{none} },
	Step: func(state, input, output interface{}) []interface{} {
		var next []interface{}
		for _, one := range after(state.(int64), input.(step)) {
			next = append(next, one)
		}
		return next
	},
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []porcupine.Operation
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) != 6 {
			return nil, fmt.Errorf("%s: six words are needed: %q", path, lines.Text())
		}
		client, _ := strconv.Atoi(words[0])
		invoked, _ := strconv.ParseInt(words[1], 10, 64)
		returned, open := int64(math.MaxInt64), words[2] == "-"
		if !open {
			returned, _ = strconv.ParseInt(words[2], 10, 64)
		}
		node, _ := strconv.ParseInt(words[5], 10, 64)
		if node == 0 {
			node = unknown
		}
		history = append(history, porcupine.Operation{
			ClientId: client,
			Input:    step{name: words[3], what: words[4], node: node, open: open},
			Call:     invoked,
			Return:   returned,
		})
	}
	return history, lines.Err()
}

func main() {
	bad := 0
	total := 0
	for _, path := range os.Args[1:] {
		history, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		began := time.Now()
		result := porcupine.CheckOperationsTimeout(model.ToModel(), history, patience)
		total += len(history)
		fmt.Printf("%s: %d operations: %s in %.2f s\n", path, len(history), result, time.Since(began).Seconds())
		if result != porcupine.Ok {
			bad++
			name(history)
		}
	}
	fmt.Printf("%d histories, %d operations: %d not linearizable\n", len(os.Args)-1, total, bad)
	if bad > 0 {
		os.Exit(1)
	}
}

// Says which name it is.
func name(history []porcupine.Operation) {
	for _, part := range model.Partition(history) {
		if porcupine.CheckOperationsTimeout(model.ToModel(), part, patience) != porcupine.Ok {
			fmt.Printf("  the name %s:\n", part[0].Input.(step).name)
			for _, operation := range part {
				fmt.Printf("    %+v\n", operation)
			}
		}
	}
}
