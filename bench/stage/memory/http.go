package memory

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"basalt.dev/basalt/api/v1beta1"
)

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

func init() {
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
}

// Handler serves the paths that client-go calls for the kinds known. It asks nobody who they are.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// target is what a path names.
type target struct{ resource, namespace, name, subresource string }

// parsePath reads /api/v1/... and /apis/<group>/<version>/...
func (s *Server) parsePath(path string) (t target, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) >= 3 {
		if k := s.kinds[parts[2]]; k != nil && k.namespaced {
			t.namespace, parts = parts[1], parts[2:]
		}
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	k := s.kinds[t.resource]
	return t, k != nil && k.gvk.GroupVersion() == gv && len(parts) <= 3
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/readyz", "/livez", "/healthz":
		_, _ = io.WriteString(w, "ok")
		return
	}
	t, ok := s.parsePath(r.URL.Path)
	if !ok {
		s.fail(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "the server could not find the requested resource", 0, true))
		return
	}
	var out runtime.Object
	var err error
	status := http.StatusOK
	switch r.Method {
	case http.MethodGet:
		switch {
		case t.name != "":
			out, err = s.Get(t.resource, t.namespace, t.name)
		case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
			s.serveWatch(w, r, t)
			return
		default:
			var o metav1.ListOptions
			if o, err = readListOptions(r); err == nil {
				out, err = s.listObject(t.resource, t.namespace, o)
			}
		}
	case http.MethodPost:
		status = http.StatusCreated
		out, err = s.servePost(r, t)
	case http.MethodPut:
		o := s.kinds[t.resource].make()
		if err = readBody(r, o); err == nil {
			out, err = s.Update(t.resource, t.subresource, o)
		}
	case http.MethodPatch:
		var body []byte
		if body, err = io.ReadAll(r.Body); err == nil {
			kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
			out, err = s.Patch(t.resource, t.namespace, t.name, t.subresource, types.PatchType(kind), body)
		}
	case http.MethodDelete:
		var o metav1.DeleteOptions
		if err = readBody(r, &o); err == nil {
			err = s.Delete(t.resource, t.namespace, t.name, o)
			out = success()
		}
	default:
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Resource: t.resource}, r.Method)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, status, out)
}

func success() *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
}

func (s *Server) servePost(r *http.Request, t target) (runtime.Object, error) {
	if t.resource == "pods" && t.subresource == "binding" {
		var b corev1.Binding
		if err := readBody(r, &b); err != nil {
			return nil, err
		}
		b.Name = t.name
		return success(), s.Bind(t.namespace, &b)
	}
	if t.name != "" {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: t.resource}, "create")
	}
	o := s.kinds[t.resource].make()
	if err := readBody(r, o); err != nil {
		return nil, err
	}
	if t.namespace != "" {
		o.SetNamespace(t.namespace)
	}
	return s.Create(t.resource, o)
}

// readBody decodes JSON or protobuf, as the request says; no body leaves into as it is.
func readBody(r *http.Request, into runtime.Object) error {
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		return err
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if media == "" {
		media = runtime.ContentTypeJSON
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, r.Method, schema.GroupResource{}, "", media, 0, false)
	}
	var gvk *schema.GroupVersionKind
	if kinds, _, err := scheme.ObjectKinds(into); err == nil {
		gvk = &kinds[0]
	}
	if _, _, err := info.Serializer.Decode(body, gvk, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// readListOptions reads what of the query matters here.
func readListOptions(r *http.Request) (o metav1.ListOptions, err error) {
	q := r.URL.Query()
	o.LabelSelector, o.FieldSelector, o.ResourceVersion = q.Get("labelSelector"), q.Get("fieldSelector"), q.Get("resourceVersion")
	o.AllowWatchBookmarks = q.Get("allowWatchBookmarks") == "true"
	if text := q.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return o, apierrors.NewBadRequest("timeoutSeconds: " + err.Error())
		}
		o.TimeoutSeconds = &seconds
	}
	return o, nil
}

// negotiate picks protobuf where it is asked for and the kind has it, else JSON.
func negotiate(r *http.Request, builtin bool) runtime.SerializerInfo {
	media := runtime.ContentTypeJSON
	if builtin && strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	return info
}

func builtin(o runtime.Object) bool {
	return o.GetObjectKind().GroupVersionKind().Group != v1beta1.SchemeGroupVersion.Group
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, status int, o runtime.Object) {
	info := negotiate(r, builtin(o))
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(status)
	_ = info.Serializer.Encode(o, w) // a client that is gone
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	body.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	s.answer(w, r, int(body.Code), &body)
}

func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, t target) {
	o, err := readListOptions(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	watching, err := s.Watch(r.Context(), t.resource, t.namespace, o)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer watching.Stop()
	info := negotiate(r, s.kinds[t.resource].gvk.Group != v1beta1.SchemeGroupVersion.Group)
	media := info.MediaType
	if media != runtime.ContentTypeJSON {
		media += ";stream=watch"
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(http.StatusOK)
	flush := func() {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	flush()
	encoder := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w), info.StreamSerializer.Serializer)
	for e := range watching.ResultChan() {
		if status, ok := e.Object.(*metav1.Status); ok {
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		}
		raw, err := runtime.Encode(info.Serializer, e.Object)
		if err != nil {
			return
		}
		if err := encoder.Encode(&metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: raw}}); err != nil {
			return
		}
		if len(watching.ResultChan()) == 0 {
			flush()
		}
	}
}
