package issue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
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

// APIServiceName is that of the APIService of deploy/visibility.yaml.
const APIServiceName = "v1beta1.visibility.basalt.dev"

// APIServicePath is where the API server keeps it.
const APIServicePath = "/apis/apiregistration.k8s.io/v1/apiservices/" + APIServiceName

// Publish tells the API server, by spec.caBundle of the APIService, which CAs verify the certificates of what it
// forwards requests to. It is an Options.Publish. Without an APIService nothing is forwarded, and there is nobody to
// tell.
func Publish(client rest.Interface) func(ctx context.Context, bundle []byte) (bool, error) {
	return func(ctx context.Context, bundle []byte) (bool, error) {
		raw, err := client.Get().AbsPath(APIServicePath).SetHeader("Accept", "application/json").Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		type spec struct {
			Bundle []byte `json:"caBundle"`
		}
		var is struct {
			Spec spec `json:"spec"`
		}
		if err := json.Unmarshal(raw, &is); err != nil || bytes.Equal(is.Spec.Bundle, bundle) {
			return false, err
		}
		patch, err := json.Marshal(map[string]spec{"spec": {bundle}})
		if err != nil {
			return false, err
		}
		err = client.Patch(types.MergePatchType).AbsPath(APIServicePath).Param("fieldManager",
			"basalt-certs").Body(patch).Do(ctx).Error()
		return err == nil, err
	}
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
