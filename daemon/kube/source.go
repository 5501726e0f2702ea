package kube

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// pageBytes is the size limit of a page. A request limits a page in objects, and an object has up
// to 1.5 MiB (etcd --max-request-bytes): 500 claims could have 750 MiB, all in memory before the
// first one is filtered.
const pageBytes = 4 << 20

// objectBytes is the size limit of a page with a single object.
const objectBytes = 32 << 20

// source is the ListWatcher of one resource, in all namespaces unless it names one. Lists are read
// by one goroutine at a time.
type source struct {
	client    rest.Interface
	params    runtime.ParameterCodec
	decoder   runtime.Decoder
	resource  string // in the plural, as in a URL
	empty     func() runtime.Object
	selection // labels "" is that of the options

	fits int64 // objects that fit in pageBytes; 0 before the first page
}

// List reads one page, with fewer objects than requested if they are large. It does not retry: the
// Informer backs off for all kinds of errors alike.
func (s *source) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	most := options.Limit
	for {
		if s.fits > 0 && (most == 0 || most > s.fits) {
			options.Limit = s.fits
		}
		data, err := s.page(ctx, options)
		switch {
		case err == nil:
			if s.fits *= 2; len(data) >= pageBytes/4 {
				s.fits /= 2
			}
			return s.decode(data)
		case !errors.Is(err, errLargePage):
			return nil, err
		case options.Limit == 1:
			return nil, fmt.Errorf("one object has more than %d bytes", objectBytes)
		case options.Limit == 0:
			s.fits = defaultTimings.pageSize
		default:
			s.fits = max(1, options.Limit/4)
		}
	}
}

// decode does what rest.Result.Into does: a Status in place of a list is an error.
func (s *source) decode(data []byte) (runtime.Object, error) {
	page := s.empty()
	out, _, err := s.decoder.Decode(data, nil, page)
	switch status, is := out.(*metav1.Status); {
	case err != nil:
		return nil, err
	case is && status.Status != metav1.StatusSuccess:
		return nil, apierrors.FromObject(status)
	case out != page:
		return nil, fmt.Errorf("the response is a %T", out)
	}
	list, err := meta.ListAccessor(page)
	if err == nil && list.GetResourceVersion() == "" { // each list of an API server has one
		err = fmt.Errorf("the response of %d bytes is no list", len(data))
	}
	return page, err
}

var errLargePage = errors.New("the page is too large")

// page returns the response to a list request. It returns errLargePage for more than pageBytes.
func (s *source) page(ctx context.Context, options metav1.ListOptions) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel() // ends a response that is not read to its end
	body, err := s.get(&options).Timeout(callTimeout).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	most := int64(pageBytes)
	if options.Limit == 1 {
		most = objectBytes
	}
	data, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > most:
		return nil, errLargePage
	default:
		return data, nil
	}
}

// Watch has no time limit other than those of the context and the options.
func (s *source) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return s.get(&options).Watch(ctx)
}

func (s *source) get(options *metav1.ListOptions) *rest.Request {
	if s.labels != "" {
		options.LabelSelector = s.labels
	}
	options.FieldSelector = s.fields
	return s.client.Get().NamespaceIfScoped(s.namespace, s.namespace != "").Resource(s.resource).
		VersionedParams(options, s.params).MaxRetries(0)
}
