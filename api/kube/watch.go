package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"
)

// lineWatch is a watch of a kind that the API server has as JSON only: an event a line. client-go reads the JSON of an event
// about ten times (the frame, the event, the kind, the object, each checked and then read); measured, the PodGroups and
// Queues of 10 pods cost a shard more than the pods. Here a line is checked and read once.
type lineWatch[T runtime.Object] struct {
	body   io.ReadCloser
	result chan watch.Event
	done   chan struct{}
	stop   func()
}

func watchLines[T runtime.Object](client rest.Interface, resource string) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.Watch = true
		body, err := client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec).Stream(ctx)
		if err != nil {
			return nil, err
		}
		return newLineWatch[T](body), nil
	}
}

func newLineWatch[T runtime.Object](body io.ReadCloser) *lineWatch[T] {
	w := &lineWatch[T]{body: body, result: make(chan watch.Event), done: make(chan struct{})}
	w.stop = sync.OnceFunc(func() {
		close(w.done)
		_ = body.Close()
	})
	go w.read()
	return w
}

func (w *lineWatch[T]) Stop()                          { w.stop() }
func (w *lineWatch[T]) ResultChan() <-chan watch.Event { return w.result }

// read ends with the stream. A line that is cut off is no event.
func (w *lineWatch[T]) read() {
	defer close(w.result)
	defer w.Stop()
	lines := bufio.NewReaderSize(w.body, 16<<10)
	var long []byte // what there is of a line that the reader's buffer does not hold
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if err != nil {
			return
		}
		if len(long) > 0 {
			line, long = append(long, line...), nil
		}
		select {
		case w.result <- readEvent[T](line):
		case <-w.done:
			return
		}
	}
}

type event[T any] struct {
	Type   watch.EventType `json:"type"`
	Object T               `json:"object"`
}

func readEvent[T runtime.Object](line []byte) watch.Event {
	e := event[T]{Object: reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)}
	err := json.UnmarshalCaseSensitivePreserveInts(line, &e)
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		if err == nil {
			return watch.Event{Type: e.Type, Object: e.Object}
		}
	case watch.Error:
		failed := event[metav1.Status]{} // the object is one, so that err says nothing
		if err = json.UnmarshalCaseSensitivePreserveInts(line, &failed); err == nil {
			return watch.Event{Type: watch.Error, Object: &failed.Object}
		}
	default:
		err = errors.Join(err, fmt.Errorf("event of type %q", e.Type))
	}
	return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(fmt.Errorf("read an event: %w", err)).ErrStatus}
}
