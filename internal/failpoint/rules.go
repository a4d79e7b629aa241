package failpoint

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// rule is what happens at a point: one hit in every so many is struck. It is
// safe for concurrent use.
type rule struct {
	exit  bool
	sleep time.Duration
	every int

	mu   sync.Mutex
	draw *rand.Rand
}

// struck draws whether this hit is one.
func (r *rule) struck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draw.IntN(r.every) == 0
}

// parse reads rules as the environment gives them. A misspelt one is an error:
// a fault that silently never happens would be taken for one that was borne.
func parse(text string, seed uint64) (map[Point]*rule, error) {
	rules := map[Point]*rule{}
	for one := range strings.SplitSeq(text, ",") {
		f := strings.Split(strings.TrimSpace(one), ":")
		if len(f) != 3 || !slices.Contains(Points, Point(f[0])) || rules[Point(f[0])] != nil {
			return nil, fmt.Errorf("failpoint: %q is not POINT:ACTION:1inN for a point of %v, once each", one, Points)
		}
		r := &rule{draw: rand.New(rand.NewPCG(seed, hash(f[0])))}
		var err error
		if length, ok := strings.CutPrefix(f[1], "sleep="); ok {
			r.sleep, err = time.ParseDuration(length)
		} else if r.exit = f[1] == "exit"; !r.exit {
			err = fmt.Errorf("%q is neither exit nor sleep=DURATION", f[1])
		}
		if err != nil {
			return nil, fmt.Errorf("failpoint: %s: %w", one, err)
		}
		n, ok := strings.CutPrefix(f[2], "1in")
		if r.every, err = strconv.Atoi(n); !ok || err != nil || r.every < 1 {
			return nil, fmt.Errorf("failpoint: %s: %q is not 1inN, with N from 1", one, f[2])
		}
		rules[Point(f[0])] = r
	}
	return rules, nil
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}
