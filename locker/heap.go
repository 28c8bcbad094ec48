package locker

import "container/heap"

// A heaped is an element of a heap. It is told where it is moved, so that it can be taken out of
// the middle.
type heaped[T any] interface {
	before(other T) bool
	moved(to int)
}

// A minHeap has the least of its elements first.
type minHeap[T heaped[T]] []T

// removedFromHeap is where an element is moved that is in the heap no more.
const removedFromHeap = -1

func (h minHeap[T]) Len() int           { return len(h) }
func (h minHeap[T]) Less(i, j int) bool { return h[i].before(h[j]) }
func (h minHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].moved(i)
	h[j].moved(j)
}

// Push implements [heap.Interface].
func (h *minHeap[T]) Push(x any) {
	t := x.(T) //nolint:errcheck,forcetypeassert // nothing else is pushed
	t.moved(len(*h))
	*h = append(*h, t)
}

// Pop implements [heap.Interface].
func (h *minHeap[T]) Pop() any {
	var none T
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last], *h = none, (*h)[:last]
	t.moved(removedFromHeap)
	return t
}

//nolint:errcheck,forcetypeassert // see Push
func (h *minHeap[T]) pop() T { return heap.Pop(h).(T) }
