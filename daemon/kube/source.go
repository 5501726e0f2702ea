package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// source is the ListWatcher of one resource, in all namespaces unless it names one.
type source struct {
	client         rest.Interface
	params         runtime.ParameterCodec
	resource       string // in the plural, as in a URL
	empty          func() runtime.Object
	labels, fields string // selectors
	namespace      string // "" is all
}

func (c *Client) source(group rest.Interface, resource string, empty func() runtime.Object) *source {
	return &source{client: group, params: c.params, resource: resource, empty: empty}
}

// List reads one page. It does not retry: the sieve backs off for all kinds of errors alike.
func (s *source) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	page := s.empty()
	return page, s.get(&options).Timeout(callTimeout).Do(ctx).Into(page)
}

// One lists one object of the resource, whatever its labels. In its namespace, the API server reads one key for that
// (apiserver, registry/generic/registry, Store.ListPredicate).
func (s *source) One(ctx context.Context, namespace, name string, options metav1.ListOptions) (runtime.Object, error) {
	one, page := *s, s.empty()
	one.namespace, one.labels, one.fields = namespace, "", "metadata.name="+name
	return page, one.get(&options).Timeout(callTimeout).Do(ctx).Into(page)
}

// Watch has no time limit but the context's and the one in options.
func (s *source) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return s.get(&options).Watch(ctx)
}

func (s *source) get(options *metav1.ListOptions) *rest.Request {
	options.LabelSelector, options.FieldSelector = s.labels, s.fields
	get := s.client.Get()
	if s.namespace != "" {
		get = get.Namespace(s.namespace)
	}
	return get.Resource(s.resource).VersionedParams(options, s.params).MaxRetries(0)
}
