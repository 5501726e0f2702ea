package report

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// Permanent reports whether an error of the API server will not pass by itself: the request is forbidden or invalid.
// Only such errors are reported about an object. The others are retried, and package kube reports a server that is away,
// or refuses the credential.
func Permanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
