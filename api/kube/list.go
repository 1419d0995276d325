package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

const asProtobuf = "application/vnd.kubernetes.protobuf"

// listStream makes a list and hands over one object after another, as they come. client-go reads an answer whole and
// makes one slice of it: of 100,000 pods the moving of that slice took half of a shard's CPU, and all of them are in memory
// before the first can be stripped.
func listStream[T runtime.Object](ctx context.Context, request *rest.Request, take func(decoded[T])) (version string, err error) {
	_, builtIn := any(*new(T)).(unmarshaler)
	read := readJSONList[T]
	if builtIn {
		request, read = request.SetHeader("Accept", asProtobuf), readList[T]
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	return read(body, take)
}

// List reads all objects of a resource that can be read, by one consistent list.
func List[T runtime.Object](ctx context.Context, client rest.Interface, resource string, log *slog.Logger) (all []T, err error) {
	u := newUnread(resource, log)
	_, err = listStream(ctx, client.Get().Resource(resource), func(d decoded[T]) {
		note(u, d)
		if d.there && d.err == nil {
			all = append(all, d.object)
		}
	})
	return all, err
}

// readJSONList reads a list in JSON: an object with metadata and items, in any order.
func readJSONList[T runtime.Object](body io.Reader, take func(decoded[T])) (version string, err error) {
	var meta *metav1.ListMeta
	found := false
	in := json.NewDecoder(bufio.NewReaderSize(body, 64<<10))
	expect := func(want json.Delim) error {
		t, err := in.Token()
		if err == nil && t != want {
			err = fmt.Errorf("%v where %v is expected", t, want)
		}
		return whole(err)
	}
	err = func() error {
		if err := expect('{'); err != nil {
			return err
		}
		for in.More() {
			field, err := in.Token()
			if err != nil {
				return err
			}
			switch field {
			case "items":
				found = true
				if err := expect('['); err != nil {
					return err
				}
				for in.More() {
					var raw json.RawMessage
					if err := in.Decode(&raw); err != nil {
						return whole(err)
					}
					take(decodeJSON[T](raw))
				}
				if err := expect(']'); err != nil {
					return err
				}
			case "metadata":
				if err := in.Decode(&meta); err != nil {
					return whole(err)
				}
			default:
				var skipped json.RawMessage
				if err := in.Decode(&skipped); err != nil {
					return whole(err)
				}
			}
		}
		return expect('}')
	}()
	switch {
	case err != nil:
		return "", fmt.Errorf("read a list: %w", err)
	case !found || meta == nil:
		return "", errors.New("read a list: there is none in the answer")
	}
	return versionOf(*meta)
}

var errPart = errors.New("read a list: it is only a part of one")

// versionOf returns the version of a list, with errPart if that is not a whole one.
func versionOf(m metav1.ListMeta) (string, error) {
	if m.Continue != "" {
		return m.ResourceVersion, errPart
	}
	return m.ResourceVersion, nil
}

// readList reads a list in Kubernetes' protobuf: a magic number, then a runtime.Unknown, of which raw is the list. Of every
// list of Kubernetes field 1 is its ListMeta and field 2 its items.
func readList[T runtime.Object](body io.Reader, take func(decoded[T])) (version string, err error) {
	r := &protoReader{in: bufio.NewReaderSize(body, 64<<10)}
	var magic [4]byte
	if _, err := io.ReadFull(r.in, magic[:]); err != nil {
		return "", fmt.Errorf("read a list: %w", err)
	}
	if string(magic[:]) != "k8s\x00" {
		return "", fmt.Errorf("read a list: it begins with %q, which is not Kubernetes' protobuf", magic)
	}
	var meta metav1.ListMeta
	found := false
	err = r.each(-1, func(field, size int64) error {
		if field != 2 {
			return r.skip(size)
		}
		found = true
		return r.each(size, func(field, size int64) error {
			switch field {
			case 1:
				b, err := r.bytes(size)
				if err != nil {
					return err
				}
				return meta.Unmarshal(b)
			case 2:
				b, err := r.bytes(size)
				if err != nil {
					return err
				}
				take(decodeProtobuf[T](b))
				return nil
			}
			return r.skip(size)
		})
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("read a list: %w", err)
	case !found:
		return "", errors.New("read a list: there is none in the answer")
	}
	return versionOf(meta)
}

// protoReader reads protobuf messages field by field.
type protoReader struct {
	in   *bufio.Reader
	read int64
	buf  bytes.Buffer
}

// ReadByte makes protoReader an io.ByteReader that counts.
func (f *protoReader) ReadByte() (byte, error) {
	b, err := f.in.ReadByte()
	if err == nil {
		f.read++
	}
	return b, err
}

// each calls do for each field of a message of so many bytes, -1 for one that ends with the input. do takes the field's bytes,
// all of them. Only fields with a length are of interest.
func (f *protoReader) each(size int64, do func(field, size int64) error) error {
	end := f.read + size
	for size < 0 || f.read < end {
		tag, err := binary.ReadUvarint(f)
		if size < 0 && errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return whole(err)
		}
		switch tag & 7 {
		case 0:
			if _, err := binary.ReadUvarint(f); err != nil {
				return whole(err)
			}
		case 2:
			n, err := binary.ReadUvarint(f)
			if err != nil {
				return whole(err)
			}
			if n > 1<<40 || size >= 0 && int64(n) > end-f.read {
				return fmt.Errorf("a field of %d bytes, longer than what it is in", n)
			}
			if err := do(int64(tag>>3), int64(n)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("a field of wire type %d", tag&7)
		}
	}
	if size >= 0 && f.read != end {
		return errors.New("a field that is longer than what it is in")
	}
	return nil
}

func (f *protoReader) skip(n int64) error {
	m, err := io.CopyN(io.Discard, f.in, n)
	f.read += m
	return whole(err)
}

// bytes are good until the next call.
func (f *protoReader) bytes(n int64) ([]byte, error) {
	f.buf.Reset()
	m, err := io.CopyN(&f.buf, f.in, n)
	f.read += m
	return f.buf.Bytes(), whole(err)
}

// whole says of an input that ends in the middle what it is.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
