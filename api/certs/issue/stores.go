package issue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Kubernetes keeps Secrets in a namespace. It makes none: they are there, empty at first, from the manifests, so that the
// right to get and update these by name is all that it needs. (RBAC cannot limit the right to create to names.)
type Kubernetes struct{ Secrets corev1.SecretInterface }

// Get implements Store.
func (k Kubernetes) Get(ctx context.Context, name string) (map[string][]byte, string, error) {
	s, err := k.Secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("%w: it comes, empty, with deploy/certs.yaml", err)
	}
	if err != nil {
		return nil, "", err
	}
	return s.Data, s.ResourceVersion, nil
}

// Put implements Store.
func (k Kubernetes) Put(ctx context.Context, name string, data map[string][]byte, version string) error {
	s, err := k.Secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.Data, s.ResourceVersion = data, version
	_, err = k.Secrets.Update(ctx, s, metav1.UpdateOptions{FieldManager: "basalt-certs"})
	return err
}

// Directory keeps a Secret in a folder of its name, as it is mounted into a pod. For processes outside of Kubernetes; it is
// for one writer.
type Directory string

// Get implements Store.
func (d Directory) Get(_ context.Context, name string) (map[string][]byte, string, error) {
	data := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(string(d), name))
	if errors.Is(err, os.ErrNotExist) {
		return data, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if data[e.Name()], err = os.ReadFile(filepath.Join(string(d), name, e.Name())); err != nil {
				return nil, "", err
			}
		}
	}
	return data, "", nil
}

// Put implements Store. Each file is replaced at once; readers go on with what they had while a key and a certificate do not
// belong together.
func (d Directory) Put(_ context.Context, name string, data map[string][]byte, _ string) error {
	dir := filepath.Join(string(d), name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	next, err := os.MkdirTemp(dir, ".next-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	for key, value := range data {
		if err := os.WriteFile(filepath.Join(next, key), value, 0o600); err != nil {
			return err
		}
	}
	for key := range data {
		if err := os.Rename(filepath.Join(next, key), filepath.Join(dir, key)); err != nil {
			return err
		}
	}
	return nil
}
