package backendtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
)

var seedFlag = flag.String("backendtest.seed", "",
	"run the storms of backendtest with this seed alone, as often as there would be others")

// chosenSeed is the seed that the command line or HOLDFAST_SEED asks for.
func chosenSeed() (seed uint64, chosen bool) {
	text := *seedFlag
	if text == "" {
		text = os.Getenv("HOLDFAST_SEED")
	}
	if text == "" {
		return 0, false
	}
	seed, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		panic("backendtest: the seed must be a number: " + err.Error())
	}
	return seed, true
}

// seeds returns n seeds, others in each run of the program, or n times the one that was asked for.
func seeds(n int) []uint64 {
	all := make([]uint64, n)
	seed, chosen := chosenSeed()
	for i := range all {
		all[i] = seed
		if !chosen {
			all[i] = uint64(rand.Uint32()) // short enough to be copied by hand
		}
	}
	return all
}

// replay is how to repeat a seed. test is the name of the test that called Run.
func replay(test string, seed uint64) string {
	return fmt.Sprintf("go test -run '^%s$/storm' -backendtest.seed=%d", test, seed)
}
