package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// Apply creates or changes the objects in a YAML stream, in its order. The API
// server refuses a field that it does not know, which it would only warn about
// otherwise: a manifest with a misspelt field should fail its test.
func (c *Cluster) Apply(ctx context.Context, manifest []byte) error {
	return c.each(manifest, func(resource dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		return apply(ctx, resource, object)
	})
}

// Delete deletes the objects in a YAML stream, in its order, as kubectl delete --ignore-not-found
// does.
func (c *Cluster) Delete(ctx context.Context, manifest []byte) error {
	return c.each(manifest, func(resource dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		err := resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// each calls do with the objects in a YAML stream, in its order.
func (c *Cluster) each(manifest []byte, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	// Read anew each time: a manifest may use what an earlier one defined.
	groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	objects, err := parseManifest(manifest)
	if err != nil {
		return err
	}
	for _, object := range objects {
		resource, err := resourceOf(client, mapper, object)
		if err == nil {
			err = do(resource, object)
		}
		if err != nil {
			return fmt.Errorf("%s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func parseManifest(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 { // else nothing but a comment
			objects = append(objects, object)
		}
	}
}

func resourceOf(client dynamic.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return client.Resource(mapping.Resource), nil
	}
	return client.Resource(mapping.Resource).Namespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)), nil
}

func apply(ctx context.Context, resource dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager:    "test",
		FieldValidation: metav1.FieldValidationStrict,
		Force:           &force,
	})
	return err
}
