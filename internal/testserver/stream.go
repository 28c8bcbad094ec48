package testserver

import (
	"bufio"
	"bytes"
	"errors"
	"time"
)

// next reads the next message of either side: one RESP value, or whatever one read gives.
func (l *link) next(br *bufio.Reader) ([]byte, error) {
	if !l.resp {
		chunk := make([]byte, 32<<10)
		n, err := br.Read(chunk)
		return chunk[:n], err
	}
	r := respReader{br: br}
	_, message, err := r.next()
	if errors.Is(err, errNotRESP) {
		l.proxy.tb.Errorf("testserver: proxy: cannot follow the stream: %v", err)
	}
	return message, err
}

// A fate is what happens to a reply.
type fate struct {
	mode Mode            // HoldReply, DelayReply, ExecuteThenCut; anything else passes
	due  time.Time       // for DelayReply
	over <-chan struct{} // for HoldReply

	subscription bool // the request was a SUBSCRIBE or the like, which RESP3 confirms by a push
}

// fates are those of the requests that wait for a reply, oldest first.
type fates []fate

// add notes what is to become of the next request's reply. Where the stream is not RESP, replies
// cannot be told apart, and only what differs from passing is noted, for whatever is read next.
func (fs *fates) add(f fate, resp bool) {
	switch f.mode {
	case HoldReply, DelayReply, ExecuteThenCut:
	default:
		if !resp || f.subscription {
			return
		}
	}
	*fs = append(*fs, f)
}

// of takes the fate of the message that the server sent. A push has one only if it confirms a
// subscription; in RESP2 the confirmation is an ordinary array.
func (fs *fates) of(message []byte, resp bool) fate {
	push := resp && message[0] == '>'
	if push && !confirms(message) {
		return fate{}
	}
	for i, f := range *fs {
		if f.subscription == push {
			return fs.take(i)
		}
	}
	if !push && len(*fs) > 0 {
		return fs.take(0)
	}
	return fate{}
}

func (fs *fates) take(i int) fate {
	f := (*fs)[i]
	*fs = append((*fs)[:i], (*fs)[i+1:]...)
	return f
}

// subscribes reports whether a command is SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE or the end of one.
func subscribes(command []byte) bool { return hasName(command, "subscribe") }

// confirms reports whether a push confirms one of those commands; other pushes are messages and
// invalidations.
func confirms(push []byte) bool { return hasName(push, "subscribe") }

// isMessage reports whether what a server sent is a pub/sub message: a push, or in RESP2 an array.
func isMessage(value []byte) bool {
	return (value[0] == '>' || value[0] == '*') && hasName(value, "message")
}

// hasName reports whether the first item of an array of bulk strings ends in suffix, in any case.
func hasName(array []byte, suffix string) bool {
	lines := bytes.SplitN(array, []byte("\r\n"), 4) // *3, $9, subscribe, rest
	if len(lines) < 3 || len(lines[2]) < len(suffix) {
		return false
	}
	return bytes.EqualFold(lines[2][len(lines[2])-len(suffix):], []byte(suffix))
}
