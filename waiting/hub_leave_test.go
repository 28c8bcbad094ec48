package waiting_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/waiting"
)

// Whoever leaves, the newest, the oldest or one in between, and however often it says so, the
// others are still signalled.
func TestHubLeave(t *testing.T) {
	for gone := range 3 {
		var h waiting.Hub[int]
		var wakes [3]<-chan int
		var leaves [3]func()
		for i := range wakes {
			wakes[i], leaves[i] = h.Enter("topic")
		}
		leaves[gone]()
		leaves[gone]()
		h.Wake("topic", 7)
		for i, wake := range wakes {
			if signalled := len(wake) == 1; signalled == (i == gone) {
				t.Errorf("%d has left, and %d is signalled: %v", gone, i, signalled)
			}
		}
		for _, leave := range leaves {
			leave()
		}
		if !h.Empty() {
			t.Errorf("%d was the first to leave, and the topic stays", gone)
		}
	}
}
