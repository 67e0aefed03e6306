// Clients that others wrote, for the tests of the API server in memory: informers of client-go, or caches of controller-runtime, over the
// config maps of every cluster in a kubeconfig.
//
// Whenever what is held of a cluster has changed, there is a line: the cluster's name, a space, and what is held, as JSON: the value of the
// key `value` by namespace and name. The program ends with its standard input.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const usage = "usage: go-clients (informer | cache) KUBECONFIG"

// Follows the config maps of a cluster, and says so at each change, until the context is done.
type follower func(ctx context.Context, config *rest.Config, changed func([]*corev1.ConfigMap)) error

func main() {
	log.SetLogger(klog.Background())
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	followers := map[string]follower{"informer": informer, "cache": controllerRuntime}
	if len(arguments) != 2 || followers[arguments[0]] == nil {
		return errors.New(usage)
	}
	follow := followers[arguments[0]]
	kubeconfig, err := clientcmd.LoadFromFile(arguments[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failed := make(chan error, len(kubeconfig.Contexts))
	for name := range kubeconfig.Contexts {
		config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, name, nil, nil).ClientConfig()
		if err != nil {
			return err
		}
		go func() {
			if err := follow(ctx, config, printer(name)); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

func informer(ctx context.Context, config *rest.Config, changed func([]*corev1.ConfigMap)) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	maps := factory.Core().V1().ConfigMaps().Informer()
	_, err = maps.AddEventHandler(handler(func() {
		var all []*corev1.ConfigMap
		for _, one := range maps.GetStore().List() {
			all = append(all, one.(*corev1.ConfigMap))
		}
		changed(all)
	}))
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	return nil
}

func controllerRuntime(ctx context.Context, config *rest.Config, changed func([]*corev1.ConfigMap)) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	clusterCache, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	maps, err := clusterCache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = maps.AddEventHandler(handler(func() {
		var list corev1.ConfigMapList
		// It waits until the first list is whole.
		if err := clusterCache.List(ctx, &list); err != nil {
			return
		}
		var all []*corev1.ConfigMap
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		changed(all)
	}))
	if err != nil {
		return err
	}
	return clusterCache.Start(ctx)
}

func handler(changed func()) clientcache.ResourceEventHandler {
	return clientcache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
}

var out sync.Mutex

func printer(name string) func([]*corev1.ConfigMap) {
	return func(all []*corev1.ConfigMap) {
		held := map[string]string{}
		for _, one := range all {
			held[one.Namespace+"/"+one.Name] = one.Data["value"]
		}
		line, err := json.Marshal(held)
		if err != nil {
			panic(err)
		}
		out.Lock()
		defer out.Unlock()
		fmt.Printf("%s %s\n", name, line)
	}
}
