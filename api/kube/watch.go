package kube

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	k8sjson "sigs.k8s.io/json"
)

// eventStream is a watch whose events are read here, not by client-go, for two reasons. One object that cannot be decoded ends
// a watch of client-go, and the next one at the same event. And of a kind that the API server has as JSON only, client-go
// reads an event about ten times (the frame, the event, the kind, the object, each checked and then read); measured, the
// PodGroups and Queues of 10 pods cost a shard more than the pods.
type eventStream struct {
	body   io.ReadCloser
	result chan watch.Event
	done   chan struct{}
	stop   func()
}

// nextEvent reads the next event of a stream. It says whether there is one; err is for the end of the stream.
type nextEvent func(*bufio.Reader) (e watch.Event, ok bool, err error)

// watchStream returns a function that opens watches of a resource, of a built-in kind in protobuf, of another in JSON.
func watchStream[T runtime.Object](client rest.Interface, resource string, u *unread) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	_, builtIn := any(*new(T)).(unmarshaler)
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.Watch = true
		request := client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
		next := lines[T](u)
		if builtIn {
			request, next = request.SetHeader("Accept", asProtobuf), frames[T](u)
		}
		body, err := request.Stream(ctx)
		if err != nil {
			return nil, err
		}
		return newEventStream(body, next), nil
	}
}

func newEventStream(body io.ReadCloser, next nextEvent) *eventStream {
	w := &eventStream{body: body, result: make(chan watch.Event), done: make(chan struct{})}
	w.stop = sync.OnceFunc(func() {
		close(w.done)
		_ = body.Close()
	})
	go w.read(next)
	return w
}

func (w *eventStream) Stop()                          { w.stop() }
func (w *eventStream) ResultChan() <-chan watch.Event { return w.result }

// read ends with the stream. What is cut off is no event.
func (w *eventStream) read(next nextEvent) {
	defer close(w.result)
	defer w.Stop()
	in := bufio.NewReaderSize(w.body, 16<<10)
	for {
		e, ok, err := next(in)
		if err != nil {
			return
		}
		if !ok {
			continue
		}
		select {
		case w.result <- e:
		case <-w.done:
			return
		}
	}
}

// lines reads events in JSON, one a line.
func lines[T runtime.Object](u *unread) nextEvent {
	return func(in *bufio.Reader) (watch.Event, bool, error) {
		var long []byte // what there is of a line that the reader's buffer does not hold
		for {
			line, err := in.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				long = append(long, line...)
				continue
			}
			if err != nil {
				return watch.Event{}, false, err
			}
			if len(long) > 0 {
				line = append(long, line...)
			}
			e, ok := readLine[T](line, u)
			return e, ok, nil
		}
	}
}

type jsonEvent[T any] struct {
	Type   watch.EventType `json:"type"`
	Object T               `json:"object"`
}

func readLine[T runtime.Object](line []byte, u *unread) (watch.Event, bool) {
	if !absurd(line) {
		e := jsonEvent[T]{Object: fresh[T]()}
		if k8sjson.UnmarshalCaseSensitivePreserveInts(line, &e) == nil && known(e.Type) {
			return watch.Event{Type: e.Type, Object: e.Object}, true
		}
	}
	var raw jsonEvent[json.RawMessage] // what is decoded into T says nothing about the event: the object may be another one
	if err := json.Unmarshal(line, &raw); err != nil {
		return failed(err), true
	}
	switch {
	case known(raw.Type):
		return decodedEvent(raw.Type, decodeJSON[T](raw.Object), u)
	case raw.Type == watch.Error:
		var status metav1.Status
		if err := k8sjson.UnmarshalCaseSensitivePreserveInts(raw.Object, &status); err != nil {
			return failed(err), true
		}
		return watch.Event{Type: watch.Error, Object: &status}, true
	}
	return failed(fmt.Errorf("event of type %q", raw.Type)), true
}

// known reports whether events of a type are about an object of the kind that is watched.
func known(t watch.EventType) bool {
	return t == watch.Added || t == watch.Modified || t == watch.Deleted || t == watch.Bookmark
}

// decodedEvent is the event of an object, unless not even its metadata can be read.
func decodedEvent[T runtime.Object](t watch.EventType, d decoded[T], u *unread) (watch.Event, bool) {
	note(u, d)
	if !d.there {
		return watch.Event{}, false
	}
	if d.err != nil {
		return watch.Event{Type: t, Object: &Unreadable{Object: d.object, Err: d.err}}, true
	}
	return watch.Event{Type: t, Object: d.object}, true
}

func failed(err error) watch.Event {
	return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(fmt.Errorf("read an event: %w", err)).ErrStatus}
}

// maxFrame is the largest event that is read. An API server sends none as large: its own store takes objects of 1.5 MiB.
const maxFrame = 64 << 20

// frames reads events in Kubernetes' protobuf: the length in four bytes, then a WatchEvent, of which the object is a magic
// number and a runtime.Unknown.
func frames[T runtime.Object](u *unread) nextEvent {
	var buf []byte
	return func(in *bufio.Reader) (watch.Event, bool, error) {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return watch.Event{}, false, err
		}
		size := int(binary.BigEndian.Uint32(head[:]))
		if size > maxFrame {
			return failed(fmt.Errorf("a frame of %d bytes, at most %d are possible", size, maxFrame)), true, nil
		}
		if cap(buf) < size {
			buf = make([]byte, size)
		}
		if _, err := io.ReadFull(in, buf[:size]); err != nil {
			return watch.Event{}, false, err
		}
		e, ok := readFrame[T](buf[:size], u)
		return e, ok, nil
	}
}

func readFrame[T runtime.Object](event []byte, u *unread) (watch.Event, bool) {
	name, err := protobufBytes(event, 1)
	if err != nil {
		return failed(err), true
	}
	extension, _ := protobufBytes(event, 2)
	object, err := protobufBytes(extension, 1)
	if err == nil {
		object, err = unwrap(object)
	}
	if err != nil {
		return failed(err), true
	}
	switch t := watch.EventType(name); {
	case known(t):
		return decodedEvent(t, decodeProtobuf[T](object), u)
	case t == watch.Error:
		var status metav1.Status
		if err := status.Unmarshal(object); err != nil {
			return failed(err), true
		}
		return watch.Event{Type: watch.Error, Object: &status}, true
	}
	return failed(fmt.Errorf("event of type %q", name)), true
}

// unwrap returns the message that a runtime.Unknown holds.
func unwrap(b []byte) ([]byte, error) {
	if len(b) < 4 || string(b[:4]) != "k8s\x00" {
		return nil, errors.New("it is not in Kubernetes' protobuf")
	}
	return protobufBytes(b[4:], 2)
}
